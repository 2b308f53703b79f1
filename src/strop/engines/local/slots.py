"""Key/value slots: the tensors, and which token ids each slot holds.

Positions are cut into chunks of 64, each a tensor of its own for all slots: the cache grows without
moving what is there, and the matrix products over a chunk read dense memory, which they need to be fast.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

CHUNK = 64
OPERATIONS = 4
"""What a class of rows that is read together costs beside reading, in chunks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheShape:
    """What a model's keys and values look like, and where they live."""

    layers: int
    kv_heads: int
    head_dim: int
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def of(cls, model: Any) -> "CacheShape":
        """That of a transformers causal LM, by its config."""
        config = model.config.get_text_config()
        heads = config.num_attention_heads
        return cls(
            layers=config.num_hidden_layers,
            kv_heads=getattr(config, "num_key_value_heads", None) or heads,
            head_dim=getattr(config, "head_dim", None) or config.hidden_size // heads,
            dtype=model.dtype,
            device=model.device,
        )

    @property
    def token_bytes(self) -> int:
        """Of one token's keys and values in all layers."""
        return 2 * self.layers * self.kv_heads * self.head_dim * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class LayerCache:
    """One layer's chunks of keys and of values: each [slots, kv_heads, CHUNK, head_dim]."""

    keys: list[Tensor] = field(default_factory=list)
    values: list[Tensor] = field(default_factory=list)


@dataclass(slots=True)
class Slot:
    """One row of the cache. `ids`: the tokens whose keys and values it holds, from position 0."""

    number: int
    ids: list[int] = field(default_factory=list)
    session: str | None = None
    busy: bool = False
    used: int = 0


@dataclass(frozen=True, slots=True)
class Span:
    """Chunks [start, stop) that hold the same tokens, and so do all before them, in all rows of a class.

    Every row is in one class; `classes` are in the order of their first rows.
    """

    start: int
    stop: int
    classes: tuple[tuple[int, ...], ...]

    @property
    def worthwhile(self) -> bool:
        """Whether reading each class's chunks once saves more than it costs.

        It saves the chunks of all rows but one of a class. It costs another copy of those read, and a few
        operations, which take about as long as to read a chunk each. They are counted for each class, though
        classes of one size share them: what is hardly worth it is left alone.
        """
        chunks, classes = self.stop - self.start, len(self.classes)
        rows = sum(map(len, self.classes))
        return (rows - classes) * chunks > classes * (chunks + OPERATIONS)


def shared_spans(slots: Sequence[Slot], most: int) -> list[Span]:
    """Leading chunks that several of these slots hold alike, where it is worth reading them together.

    From span to span classes divide, into `most` at most; behind the last span every row is read by itself.
    """
    classes: tuple[tuple[int, ...], ...] = (tuple(range(len(slots))),)
    spans: list[Span] = []
    for chunk in range(min(len(slot.ids) for slot in slots) // CHUNK):
        classes = tuple(part for rows in classes for part in _alike(slots, rows, chunk))
        if len(classes) > min(most, len(slots) // 2):
            break
        if spans and spans[-1].classes == classes:
            spans[-1] = replace(spans[-1], stop=chunk + 1)
        else:
            spans.append(Span(chunk, chunk + 1, classes))
    while spans and not spans[-1].worthwhile:
        spans.pop()
    return spans


def _alike(slots: Sequence[Slot], rows: Sequence[int], chunk: int) -> list[tuple[int, ...]]:
    """The rows by what they hold in a chunk."""
    found: dict[tuple[int, ...], list[int]] = {}
    for row in rows:
        found.setdefault(tuple(slots[row].ids[chunk * CHUNK : (chunk + 1) * CHUNK]), []).append(row)
    return [tuple(each) for each in found.values()]


def common_length(one: Sequence[int], other: Sequence[int]) -> int:
    """Length of the longest common prefix of two lists of the same type."""
    low, high = 0, min(len(one), len(other))
    if one[:high] == other[:high]:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle
    return low


class Bank:
    """Up to `limit` slots. Tensors grow with need: slots by doubling, length by chunks."""

    def __init__(self, shape: CacheShape, limit: int) -> None:
        self.shape = shape
        self.limit = limit
        self.slots: list[Slot] = []
        self.layers = [LayerCache() for _ in range(shape.layers)]
        self._rows = 0
        self._chunks = 0
        self._clock = 0

    @property
    def bytes(self) -> int:
        """Memory that the tensors take."""
        return sum(chunk.nbytes for chunks in self._all() for chunk in chunks)

    def take(self, prompt: list[int], session: str | None) -> Slot | None:
        """A slot for a request, marked busy; None while all slots are.

        The session's own slot first, then an idle one of no session that the prompt continues, then a
        new one, then the idle one that was used longest ago.
        """
        slot = self._own(session) or self._continued(prompt) or self._new() or self._oldest()
        if slot is None:
            return None
        self._clock += 1
        slot.busy, slot.session, slot.used = True, session, self._clock
        return slot

    def release(self, slot: Slot) -> None:
        """The request has ended; what the slot holds stays until it is taken again."""
        slot.busy = False

    def adopt(self, slot: Slot, prompt: list[int], source: Slot, length: int) -> None:
        """Make `slot` hold exactly the first `length` ids of `prompt`, which `source` holds."""
        self.reserve(length)
        if source is not slot:
            for chunks in self._all():
                for chunk in chunks[: -(-length // CHUNK)]:
                    chunk[slot.number] = chunk[source.number]
        slot.ids = prompt[:length]

    def longest(self, prompt: list[int], slot: Slot) -> tuple[Slot, int]:
        """The slot that holds the longest prefix of `prompt`, and that length; `slot` itself wins ties."""
        best, length = slot, common_length(slot.ids, prompt)
        if length and length == len(slot.ids):
            return best, length
        for other in self.slots:
            if len(other.ids) > length and (shared := common_length(other.ids, prompt)) > length:
                best, length = other, shared
        return best, length

    def wipe(self, slot: Slot) -> None:
        """Forget a slot whose numbers are not finite: zero weight times NaN would still be NaN."""
        slot.ids = []
        for chunks in self._all():
            for chunk in chunks:
                chunk[slot.number].zero_()

    def reserve(self, length: int) -> None:
        """Room for every slot made so far at `length` positions."""
        if len(self.slots) > self._rows:
            self._rows = min(self.limit, max(2 * self._rows, len(self.slots), 4))
            for chunks in self._all():
                chunks[:] = [self._widened(chunk) for chunk in chunks]
        missing = max(0, -(-length // CHUNK) - self._chunks)
        self._chunks += missing
        for chunks in self._all():
            chunks.extend(self._empty() for _ in range(missing))

    def _all(self) -> Iterator[list[Tensor]]:
        for layer in self.layers:
            yield layer.keys
            yield layer.values

    def _empty(self) -> Tensor:
        # Zeros, since a weight of zero times a NaN left in fresh memory would be NaN.
        shape = (self._rows, self.shape.kv_heads, CHUNK, self.shape.head_dim)
        return torch.zeros(shape, dtype=self.shape.dtype, device=self.shape.device)

    def _widened(self, chunk: Tensor) -> Tensor:
        wider = self._empty()
        wider[: chunk.shape[0]] = chunk
        return wider

    def _own(self, session: str | None) -> Slot | None:
        if session is None:
            return None
        return next((slot for slot in self.slots if slot.session == session and not slot.busy), None)

    def _continued(self, prompt: list[int]) -> Slot | None:
        idle = [slot for slot in self.slots if not slot.busy and slot.session is None and slot.ids]
        fitting = [slot for slot in idle if common_length(slot.ids, prompt) == len(slot.ids)]
        return max(fitting, key=lambda slot: (len(slot.ids), slot.used), default=None)

    def _new(self) -> Slot | None:
        if len(self.slots) == self.limit:
            return None
        self.slots.append(Slot(len(self.slots)))
        return self.slots[-1]

    def _oldest(self) -> Slot | None:
        idle = (slot for slot in self.slots if not slot.busy)
        return min(idle, key=lambda slot: slot.used, default=None)

"""Attention over key/value slots, for any transformers model that lets its attention be chosen.

The function registered here is called by the model's own layers with the new queries, keys and values
of a batch. It writes keys and values into the slots that `Placement` names, then attends over all that
the slots hold. K and V are never repeated for grouped queries: the queries of one key head are folded
into one matrix instead.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from strop.engines.local.slots import CHUNK, LayerCache, Span

NAME = "strop_slots"
SHORT = 17
"""Most tokens a row of a pass that decodes; longer rows are read as prompts are."""
HARMLESS = frozenset({"dropout", "position_ids", "position_embeddings", "use_cache", "is_causal", "cache"})


class UnsupportedAttention(Exception):
    """The model asks its attention for something that slots cannot do."""


class Scores(NamedTuple):
    """How a product of query and key becomes a score: s · scaling, then cap · tanh(s / cap), as Gemma 2 does.

    None is no cap.
    """

    scaling: float
    cap: float | None = None


class _Target(NamedTuple):
    """The tokens of a batch that go into one chunk: which they are, and where they go."""

    chunk: int
    rows: Tensor
    columns: Tensor
    slots: Tensor
    offsets: Tensor


class Held(NamedTuple):
    """Keys or values [sets, kv_heads, positions, head_dim], each for as many of `rows`, one after another.

    `rows` None: all, in order.
    """

    rows: slice | Tensor | None
    what: Tensor


@dataclass(slots=True, kw_only=True)
class Placement:
    """Where the R rows of one forward pass of T tokens each live.

    `slots`: R distinct slot numbers. `starts`: [R], position of each row's first token; a token sees its
    slot's positions up to its own. Indices and masks are made once and shared by all layers. Chunks of
    `shared` spans are read from one slot of each class when tokens are decoded, at most SHORT at once.
    """

    layers: Sequence[LayerCache]
    slots: Sequence[int]
    starts: Sequence[int]
    length: int
    device: torch.device
    shared: Sequence[Span] = ()
    positions: Tensor = field(init=False)
    rows: Tensor = field(init=False)
    chunks: int = field(init=False)
    _neighbours: bool = field(init=False)
    _together: list[list[tuple[slice | Tensor | None, Tensor]]] = field(init=False)
    _targets: list[_Target] = field(init=False)
    _masks: dict[int | None, Tensor] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.rows = torch.tensor(self.slots, device=self.device)
        offsets = torch.arange(self.length, device=self.device)
        self.positions = torch.tensor(self.starts, device=self.device)[:, None] + offsets
        self.chunks = -(-(max(self.starts) + self.length) // CHUNK)
        first = self.slots[0]
        self._neighbours = list(self.slots) == list(range(first, first + len(self.slots)))
        self._together = [[self._read_at(some) for some in _of_one_size(span)] for span in self.shared]
        self._targets = [self._target(chunk) for chunk in range(min(self.starts) // CHUNK, self.chunks)]

    def windows(self) -> set[int | None]:
        """The windows that layers have asked for so far; None: all before."""
        return set(self._masks)

    def write(self, layer: int, key: Tensor, value: Tensor) -> None:
        """Put new keys and values, [R, kv_heads, T, head_dim], into their slots."""
        held = self.layers[layer]
        key, value = key.transpose(1, 2), value.transpose(1, 2)
        for chunk, rows, columns, slots, offsets in self._targets:
            held.keys[chunk][slots, :, offsets] = key[rows, columns]
            held.values[chunk][slots, :, offsets] = value[rows, columns]

    def read(self, chunks: Sequence[Tensor]) -> list[list[Held]]:
        """What the rows' slots hold, stretch by stretch: the shared spans, then chunk by chunk.

        A span's classes have one set of CHUNK · chunks positions each, all of a chunk's rows their own.
        """
        shared = [
            [
                Held(rows, torch.cat([c.index_select(0, slots) for c in chunks[span.start : span.stop]], 2))
                for rows, slots in of
            ]
            for span, of in zip(self.shared, self._together, strict=True)
        ]
        own = chunks[self.shared[-1].stop if self.shared else 0 : self.chunks]
        return shared + [[Held(None, self._own(chunk))] for chunk in own]

    def mask(self, window: int | None, dtype: torch.dtype, repeats: int) -> Tensor:
        """[R, 1, repeats · T, keys] for the queries of `repeats` heads in one block: 0 where a token sees
        a key, else -inf; `window` keeps the last so many."""
        if window not in self._masks:
            keys = torch.arange(self.chunks * CHUNK, device=self.device)
            own = self.positions[:, None, :, None]
            unseen = keys > own if window is None else (keys > own) | (keys <= own - window)
            bias = torch.zeros(unseen.shape, dtype=dtype, device=self.device)
            self._masks[window] = bias.masked_fill_(unseen, float("-inf")).repeat(1, 1, repeats, 1)
        return self._masks[window]

    def seen_whole(self, window: int | None) -> int:
        """How many keys come before the first chunk that some token does not see whole."""
        return min(self.starts) // CHUNK * CHUNK if window is None else 0

    def _own(self, chunk: Tensor) -> Tensor:
        one = self.slots[0]
        return chunk[one : one + len(self.slots)] if self._neighbours else chunk.index_select(0, self.rows)

    def _read_at(self, classes: Sequence[Sequence[int]]) -> tuple[slice | Tensor | None, Tensor]:
        """How to index the rows of some classes, class by class, and the slot that is read for each class."""
        rows = [row for some in classes for row in some]
        slots = torch.tensor([self.slots[some[0]] for some in classes], device=self.device)
        if rows != list(range(rows[0], rows[0] + len(rows))):
            return torch.tensor(rows, device=self.device), slots
        return (None if len(rows) == len(self.slots) else slice(rows[0], rows[-1] + 1)), slots

    def _target(self, chunk: int) -> _Target:
        rows, columns = torch.nonzero(self.positions // CHUNK == chunk, as_tuple=True)
        return _Target(chunk, rows, columns, self.rows[rows], self.positions[rows, columns] % CHUNK)


def _of_one_size(span: Span) -> list[list[tuple[int, ...]]]:
    """The classes of a span by how many rows they have."""
    found: dict[int, list[tuple[int, ...]]] = {}
    for rows in span.classes:
        found.setdefault(len(rows), []).append(rows)
    return list(found.values())


def slot_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float,
    placement: Placement | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **asked: Any,
) -> tuple[Tensor, None]:
    """Attention of [R, heads, T, head_dim] queries over their slots; returns [R, T, heads, head_dim].

    Raises UnsupportedAttention where the model asks for more than causal or sliding-window attention,
    with capped scores or without.
    """
    refuse_more(asked, attention_mask)
    if placement is None:
        raise UnsupportedAttention("attention without slots")
    layer = module.layer_idx
    assert isinstance(layer, int)
    scores = Scores(scaling, softcap)
    return attend(layer, query, key, value, placement, scores=scores, window=sliding_window), None


def refuse_more(asked: Mapping[str, Any], attention_mask: Tensor | None) -> None:
    """Raise UnsupportedAttention where a model brings a mask or asks for what is none of HARMLESS."""
    wishes = {name for name, wish in asked.items() if wish is not None and wish is not False}
    extra = sorted(wishes - HARMLESS)
    if attention_mask is not None or extra:
        raise UnsupportedAttention(", ".join(extra) or "a mask of its own")


def attend(
    layer: int,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    placement: Placement,
    *,
    scores: Scores,
    window: int | None,
) -> Tensor:
    """Write keys and values [R, kv_heads, T, head_dim] into their slots and let the queries attend.

    Returns [R, T, heads, head_dim].
    """
    placement.write(layer, key, value)
    keys, values = (
        placement.read(placement.layers[layer].keys),
        placement.read(placement.layers[layer].values),
    )
    mask = placement.mask(window, query.dtype, query.shape[1] // key.shape[1])
    if placement.length > SHORT:
        return folded_attention(query, _dense(keys), _dense(values), mask, scores)
    folded = (query * scores.scaling).reshape(query.shape[0], key.shape[1], -1, query.shape[3])
    out = _decode(folded, keys, values, mask[..., placement.seen_whole(window) :], scores.cap)
    return out.reshape(query.shape).transpose(1, 2)


def _dense(stretches: Sequence[Sequence[Held]]) -> Tensor:
    """All positions of rows that share nothing."""
    return torch.cat([held.what for stretch in stretches for held in stretch], 2)


def _decode(
    query: Tensor,
    keys: Sequence[Sequence[Held]],
    values: Sequence[Sequence[Held]],
    mask: Tensor,
    cap: float | None,
) -> Tensor:
    """[R, kv_heads, queries of one key head, head_dim], scaled, over stretches of keys and values.

    `mask` is of the last keys; all before them are seen.
    """
    scores = torch.cat([_scores(query, stretch) for stretch in keys], -1)
    if cap is not None:
        scores = torch.tanh(scores / cap) * cap
    scores[..., scores.shape[-1] - mask.shape[-1] :] += mask
    # In the number format of the scores: softmax computes in float32 inside and rounds once.
    lengths = [stretch[0].what.shape[2] for stretch in values]
    weights = torch.split(torch.softmax(scores, dim=-1), lengths, -1)
    out = torch.zeros_like(query)
    for weight, stretch in zip(weights, values, strict=True):
        for rows, held in stretch:
            if rows is None:
                out += _product(weight, held)
            else:
                out[rows] += _product(weight[rows], held)
    return out


def _scores(query: Tensor, stretch: Sequence[Held]) -> Tensor:
    """[R, kv_heads, queries of one key head, positions] products with the keys of a stretch."""
    first, keys = stretch[0]
    if first is None:
        return _product(query, keys.transpose(2, 3))
    out = query.new_empty((*query.shape[:3], keys.shape[2]))
    for rows, held in stretch:
        out[rows] = _product(query[rows], held.transpose(2, 3))
    return out


def _product(rows: Tensor, held: Tensor) -> Tensor:
    """[R, kv_heads, q, m] times [sets, kv_heads, m, n]: a set's rows are one matrix for each of its heads."""
    sets, (heads, count, width) = len(held), rows.shape[1:]
    each = len(rows) // sets
    together = rows.reshape(sets, each, heads, count, width).transpose(1, 2)
    together = together.reshape(sets * heads, each * count, width)
    out = torch.bmm(together, held.flatten(0, 1)).view(sets, heads, each, count, -1)
    return out.transpose(1, 2).flatten(0, 1)


def folded_attention(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor, scores: Scores) -> Tensor:
    """[R, T, heads, head_dim] for queries [R, heads, T, head_dim] over keys [R, kv_heads, m, head_dim].

    The queries of one key head are one block, so that keys and values are not repeated; `mask` is of
    that block and broadcasts to [R, kv_heads, repeats · T, m].
    """
    folded = query.reshape(query.shape[0], keys.shape[1], -1, query.shape[3])
    if scores.cap is None:
        out = F.scaled_dot_product_attention(folded, keys, values, attn_mask=mask, scale=scores.scaling)
    else:
        products = folded @ keys.transpose(2, 3) * scores.scaling
        capped = torch.tanh(products / scores.cap) * scores.cap + mask
        out = torch.softmax(capped, dim=-1) @ values
    return out.reshape(query.shape).transpose(1, 2)


def install(model: Any) -> None:
    """Make `model` attend over slots. Without a mask function of the same name no mask is built."""
    ALL_ATTENTION_FUNCTIONS.register(NAME, slot_attention)
    model.set_attn_implementation(NAME)

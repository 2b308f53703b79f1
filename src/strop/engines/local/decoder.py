"""Decoders: from tokens in slots to next-token logits. All torch work of the sampler but the draw."""

import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Protocol

import torch
from torch import Tensor

from strop.engines.local import attention
from strop.engines.local.attention import Placement
from strop.engines.local.halves import side_by_side
from strop.engines.local.layers import foreign_layers, windows
from strop.engines.local.lean import Batch, LeanLlama, agrees, lean_for
from strop.engines.local.slots import Bank, CacheShape, Slot, Span, shared_spans
from strop.errors import in_one_line

PIECE = 2048
BLOCK = 128


@dataclass(frozen=True, slots=True)
class Piece:
    """Tokens to be put into a slot behind what it holds."""

    slot: Slot
    ids: list[int]


class Decoder(Protocol):
    """What a lane needs of a model."""

    vocab_size: int
    note: str | None
    """What is slow with this model and why; None: nothing."""

    def bank(self, slots: int) -> Bank:
        """Empty slots of this model's shape."""
        ...

    def fill(self, bank: Bank, pieces: Sequence[Piece]) -> None:
        """Append the pieces' ids to their slots; one piece a slot."""
        ...

    def step(self, bank: Bank, slots: Sequence[Slot], rows: Sequence[Sequence[int]]) -> Iterator[Tensor]:
        """Append a few tokens to each slot, 1 to SHORT; float32 logits of what comes after each of them.

        The tokens' logits, row after row, in blocks of [some, vocabulary]. All must be taken.
        """
        ...


class SlotDecoder:
    """A transformers causal LM that attends over slots.

    The model must be the sampler's own: its attention is replaced for good, its weights must not change.
    """

    def __init__(self, model: Any) -> None:
        self.model = model.eval()
        self.body = model.base_model
        self.vocab_size = int(model.get_input_embeddings().weight.shape[0])
        self.device = model.device
        attention.install(model)
        self.note: str | None = None
        self.windows: set[int | None] = set()
        """The windows that layers have asked for in passes that the model itself made; None: all before."""
        self._lean: LeanLlama | None = None

    def bank(self, slots: int) -> Bank:
        return Bank(CacheShape.of(self.model), slots)

    def fill(self, bank: Bank, pieces: Sequence[Piece]) -> None:
        for batch in _batches(pieces):
            if self._lean is not None:
                halves, _ = self._halves(batch)
                side_by_side(self._lean.hidden, [self._placed(bank, half) for half in halves])
            else:
                self._forward(self.body, self._placed(bank, batch))
            for piece in batch:
                piece.slot.ids.extend(piece.ids)

    def step(self, bank: Bank, slots: Sequence[Slot], rows: Sequence[Sequence[int]]) -> Iterator[Tensor]:
        pieces = [Piece(slot, list(row)) for slot, row in zip(slots, rows, strict=True)]
        if self._lean is not None:
            halves, order = self._halves(pieces)
            batches = [self._placed(bank, half, self._shared(half)) for half in halves]
            hidden = torch.cat(side_by_side(self._lean.hidden, batches))
            for block in torch.split(hidden[torch.tensor(order, device=self.device)], BLOCK):
                yield self._lean.head(block).float()
        else:
            placed = self._placed(bank, pieces, self._shared(pieces))
            logits = self._forward(self.model, placed).logits.flatten(0, 1)
            yield (logits if placed.real is None else logits[placed.real]).float()
        for piece in pieces:
            piece.slot.ids.extend(piece.ids)

    @torch.inference_mode()
    def quicken(self, expected: Tensor | None = None) -> bool:
        """From now on take the lean pass, if there is one and it gives what the model itself gives.

        `expected`: the model's own logits, [1, V], after `spread`; None: they are made here.
        """
        lean = lean_for(self.model)
        if lean is not None:
            if expected is None:
                expected = self._forward(self.model, self._probe(), logits_to_keep=1).logits[:, -1]
            self._lean = lean if agrees(lean.head(lean.hidden(self._probe())[-1:]), expected) else None
        return self._lean is not None

    def of_copy(self, model: Any) -> "SlotDecoder | None":
        """This decoder for a copy of its model with other weights, which need not be tried again.

        What is tried when a decoder is made hangs on the architecture alone. None for another one.
        """
        if not _same_kind(self.model, model):
            return None
        made = SlotDecoder(model)
        made._lean = lean_for(model) if self._lean is not None else None
        return made

    def _probe(self) -> Batch:
        ids, bank = spread(self.vocab_size), self.bank(1)
        slot = bank.take(ids, None)
        assert slot is not None
        return self._placed(bank, [Piece(slot, ids)])

    def _halves(self, pieces: Sequence[Piece]) -> tuple[list[list[Piece]], list[int]]:
        """Pieces in two parts on a processor, short ones first, with the way back; in one elsewhere."""
        return _by_length(pieces, halve=self.device.type == "cpu")

    def _shared(self, pieces: Sequence[Piece]) -> list[Span]:
        """What rows read together; on a device, where operations cost more than reading, all or none."""
        return shared_spans([piece.slot for piece in pieces], len(pieces) if self.device.type == "cpu" else 1)

    def _placed(self, bank: Bank, pieces: Sequence[Piece], shared: Sequence[Span] = ()) -> Batch:
        longest = max(len(piece.ids) for piece in pieces)
        starts = [len(piece.slot.ids) for piece in pieces]
        bank.reserve(max(starts) + longest)
        placement = Placement(
            layers=bank.layers,
            slots=[piece.slot.number for piece in pieces],
            starts=starts,
            length=longest,
            device=self.device,
            shared=shared,
        )
        padded = [piece.ids + [0] * (longest - len(piece.ids)) for piece in pieces]
        ids = torch.tensor(padded, device=self.device)
        return Batch(ids, placement, _real(pieces, longest, self.device))

    def _forward(self, module: Any, batch: Batch, **options: Any) -> Any:
        output = module(
            input_ids=batch.ids,
            position_ids=batch.placement.positions,
            use_cache=False,
            placement=batch.placement,
            **options,
        )
        self.windows |= batch.placement.windows()
        return output


class RecomputingDecoder:
    """The plain way, for a model whose attention cannot use slots: every step reads everything again."""

    def __init__(self, model: Any, note: str | None = None) -> None:
        self.model = model.eval()
        self.note = note
        self.vocab_size = int(model.get_input_embeddings().weight.shape[0])

    def bank(self, slots: int) -> Bank:
        nothing = CacheShape(layers=0, kv_heads=0, head_dim=0, dtype=torch.float32, device=self.model.device)
        return Bank(nothing, slots)

    def fill(self, bank: Bank, pieces: Sequence[Piece]) -> None:
        del bank
        for piece in pieces:
            piece.slot.ids.extend(piece.ids)

    def step(self, bank: Bank, slots: Sequence[Slot], rows: Sequence[Sequence[int]]) -> Iterator[Tensor]:
        del bank
        for slot, row in zip(slots, rows, strict=True):
            slot.ids.extend(row)
            ids = torch.tensor([slot.ids], device=self.model.device)
            yield self.model(input_ids=ids, use_cache=False).logits[0, -len(row) :].float()


def decoder_for(model: Any, others: Iterable[Decoder] = ()) -> Decoder:
    """A decoder over slots where the model allows it, else the plain one, with a warning.

    `others` are decoders that were made before: a copy of the model of one of them is decoded likewise.
    """
    for other in others:
        if isinstance(other, SlotDecoder) and (made := other.of_copy(model)) is not None:
            return made
    own = model.config._attn_implementation
    decoder = _slotted(model)
    if isinstance(decoder, SlotDecoder):
        return decoder
    model.set_attn_implementation(own)
    note = f"{model.config.model_type}: {decoder}, so it is decoded without a cache, which is slow"
    warnings.warn(note, RuntimeWarning, stacklevel=3)
    return RecomputingDecoder(model, note)


@torch.inference_mode()
def _slotted(model: Any) -> SlotDecoder | str:
    """A decoder over slots that gives what the model itself gives, or why there is none."""
    foreign = foreign_layers(model.config.get_text_config())
    if foreign is not None or not model._supports_attention_backend:
        return foreign or "its attention cannot be chosen"
    ids = spread(int(model.get_input_embeddings().weight.shape[0]))
    last = {"use_cache": False, "logits_to_keep": 1}
    expected = model(input_ids=torch.tensor([ids], device=model.device), **last).logits[:, -1]
    try:
        decoder = SlotDecoder(model)
        refusal = None if decoder.quicken(expected) else _refusal(decoder, ids, expected)
    except attention.UnsupportedAttention as asked:
        refusal = f"its attention asks for {asked}"
    except Exception as error:  # noqa: BLE001 any model's own code, over keys and values it may not expect
        refusal = f"its keys and values do not fit in slots ({in_one_line(error)})"
    return refusal or decoder


def _refusal(decoder: SlotDecoder, ids: list[int], expected: Tensor) -> str | None:
    """Why a model's own pass over slots, in two parts, is not what it gives without; None: it is."""
    bank = decoder.bank(1)
    slot = bank.take(ids, None)
    assert slot is not None
    decoder.fill(bank, [Piece(slot, ids[:-1])])
    (logits,) = decoder.step(bank, [slot], [ids[-1:]])
    if decoder.windows != set(windows(decoder.model.config.get_text_config()).values()):
        return "its attention is not told of its sliding window"
    return None if agrees(logits, expected) else "attention over slots gives other logits"


def spread(vocabulary: int) -> list[int]:
    """From all over the vocabulary: its first ids are control tokens, where bfloat16 is nats off."""
    return [vocabulary * part // 9 for part in range(1, 9)]


def _same_kind(one: Any, other: Any) -> bool:
    """Whether two models differ in their weights alone."""
    return (
        type(one) is type(other)
        and (one.dtype, one.device) == (other.dtype, other.device)
        and one.config.to_dict() == other.config.to_dict()
    )


def _real(batch: Sequence[Piece], longest: int, device: torch.device) -> Tensor | None:
    """Places of the pieces' tokens in rows padded to the longest; None without padding."""
    if all(len(piece.ids) == longest for piece in batch):
        return None
    places = [range(row * longest, row * longest + len(piece.ids)) for row, piece in enumerate(batch)]
    return torch.tensor([place for some in places for place in some], device=device)


def _by_length(pieces: Sequence[Piece], *, halve: bool) -> tuple[list[list[Piece]], list[int]]:
    """Pieces with the short ones first, cut where half of the tokens are on either side; and the way back.

    The way back: for each token of the pieces in the order given, its place in the tokens of the parts.
    """
    order = sorted(range(len(pieces)), key=lambda index: len(pieces[index].ids))
    ends = [0, *accumulate(len(pieces[index].ids) for index in order)]
    cut = next(at for at, end in enumerate(ends) if 2 * end >= ends[-1]) if halve else len(order)
    starts = dict(zip(order, ends, strict=False))
    back = [starts[index] + at for index, piece in enumerate(pieces) for at in range(len(piece.ids))]
    return [[pieces[index] for index in part] for part in (order[:cut], order[cut:]) if part], back


def _batches(pieces: Sequence[Piece]) -> list[list[Piece]]:
    """Pieces in the order given, so many a batch that rows times longest row stay within PIECE tokens.

    A piece longer than that is cut; its parts follow one another in batches of their own.
    """
    batches: list[list[Piece]] = []
    longest = 0
    for piece in pieces:
        parts = [piece.ids[at : at + PIECE] for at in range(0, len(piece.ids), PIECE)]
        for part in parts:
            grown = max(longest, len(part))
            if not batches or len(parts) > 1 or grown * (len(batches[-1]) + 1) > PIECE:
                batches.append([])
                grown = len(part)
            batches[-1].append(Piece(piece.slot, part))
            longest = grown
    return batches

"""Decoders: from tokens in slots to next-token logits. All torch work of the sampler but the draw."""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from strop.engines.local import attention
from strop.engines.local.attention import Placement
from strop.engines.local.lean import LeanLlama, agrees, lean_for
from strop.engines.local.slots import Bank, CacheShape, Slot, shared_chunks

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
        self._lean: LeanLlama | None = None

    def bank(self, slots: int) -> Bank:
        return Bank(_cache_shape(self.model), slots)

    def fill(self, bank: Bank, pieces: Sequence[Piece]) -> None:
        for batch in _batches(pieces):
            longest, padded = _padded(batch)
            ids, placement = self._placed(bank, [piece.slot for piece in batch], padded)
            if self._lean is not None:
                self._lean.hidden(ids, placement, _real(batch, longest, self.device))
            else:
                self._forward(self.body, ids, placement)
            for piece in batch:
                piece.slot.ids.extend(piece.ids)

    def step(self, bank: Bank, slots: Sequence[Slot], rows: Sequence[Sequence[int]]) -> Iterator[Tensor]:
        pieces = [Piece(slot, list(row)) for slot, row in zip(slots, rows, strict=True)]
        longest, padded = _padded(pieces)
        ids, placement = self._placed(bank, slots, padded, shared_chunks(slots))
        real = _real(pieces, longest, self.device)
        if self._lean is not None:
            hidden = self._lean.hidden(ids, placement, real)
            for block in torch.split(hidden, BLOCK):
                yield self._lean.head(block).float()
        else:
            logits = self._forward(self.model, ids, placement).logits.flatten(0, 1)
            yield (logits if real is None else logits[real]).float()
        for piece in pieces:
            piece.slot.ids.extend(piece.ids)

    @torch.inference_mode()
    def quicken(self) -> None:
        """From now on take the lean pass, if there is one and it gives what the model itself gives."""
        lean = lean_for(self.model)
        # From all over the vocabulary: its first ids are control tokens, where bfloat16 is nats off.
        ids = [self.vocab_size * part // 9 for part in range(1, 9)]

        def probe() -> tuple[Tensor, Placement]:
            bank = self.bank(1)
            slot = bank.take(ids, None)
            assert slot is not None
            return self._placed(bank, [slot], [ids])

        if lean is not None:
            own = self._forward(self.model, *probe(), logits_to_keep=1).logits[:, -1]
            self._lean = lean if agrees(lean.head(lean.hidden(*probe())[-1:]), own) else None

    def _placed(
        self, bank: Bank, slots: Sequence[Slot], rows: list[list[int]], shared: int = 0
    ) -> tuple[Tensor, Placement]:
        starts = [len(slot.ids) for slot in slots]
        bank.reserve(max(starts) + len(rows[0]))
        placement = Placement(
            layers=bank.layers,
            slots=[slot.number for slot in slots],
            starts=starts,
            length=len(rows[0]),
            device=self.device,
            shared=shared,
        )
        return torch.tensor(rows, device=self.device), placement

    def _forward(self, module: Any, ids: Tensor, placement: Placement, **options: Any) -> Any:
        return module(
            input_ids=ids, position_ids=placement.positions, use_cache=False, placement=placement, **options
        )


class RecomputingDecoder:
    """The plain way, for a model whose attention cannot use slots: every step reads everything again."""

    def __init__(self, model: Any) -> None:
        self.model = model.eval()
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


def decoder_for(model: Any, name: str) -> Decoder:
    """A decoder over slots where the model allows it, else the plain one, with a warning."""
    own = model.config._attn_implementation
    reason = "its attention cannot be chosen"
    if model._supports_attention_backend:
        decoder = SlotDecoder(model)
        try:
            if _uses_slots(decoder):
                decoder.quicken()
                return decoder
        except attention.UnsupportedAttention as refusal:
            reason = f"its attention asks for {refusal}"
        model.set_attn_implementation(own)
    warnings.warn(
        f"{name}: {reason}, so it is decoded without a cache, which is slow", RuntimeWarning, stacklevel=3
    )
    return RecomputingDecoder(model)


@torch.inference_mode()
def _uses_slots(decoder: SlotDecoder) -> bool:
    """Whether every layer writes its keys into the slots."""
    bank = decoder.bank(1)
    slot = bank.take([1, 1, 1], None)
    assert slot is not None
    decoder.fill(bank, [Piece(slot, [1, 1])])
    for _ in decoder.step(bank, [slot], [[1]]):
        pass
    return all(bool(layer.keys[0][0, :, :3].any(dim=-1).all()) for layer in bank.layers)


def _cache_shape(model: Any) -> CacheShape:
    config = model.config.get_text_config()
    heads = config.num_attention_heads
    return CacheShape(
        layers=config.num_hidden_layers,
        kv_heads=getattr(config, "num_key_value_heads", None) or heads,
        head_dim=getattr(config, "head_dim", None) or config.hidden_size // heads,
        dtype=model.dtype,
        device=model.device,
    )


def _padded(batch: Sequence[Piece]) -> tuple[int, list[list[int]]]:
    """The longest piece's length, and all pieces' ids filled up to it."""
    longest = max(len(piece.ids) for piece in batch)
    return longest, [piece.ids + [0] * (longest - len(piece.ids)) for piece in batch]


def _real(batch: Sequence[Piece], longest: int, device: torch.device) -> Tensor | None:
    """Places of the pieces' tokens in rows padded to the longest; None without padding."""
    if all(len(piece.ids) == longest for piece in batch):
        return None
    places = [range(row * longest, row * longest + len(piece.ids)) for row, piece in enumerate(batch)]
    return torch.tensor([place for some in places for place in some], device=device)


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

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

from strop.engines.local.slots import CHUNK, LayerCache

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


@dataclass(slots=True, kw_only=True)
class Placement:
    """Where the R rows of one forward pass of T tokens each live.

    `slots`: R distinct slot numbers. `starts`: [R], position of each row's first token; a token sees its
    slot's positions up to its own. Indices and masks are made once and shared by all layers. The first
    `shared` chunks hold the same tokens in all these slots: decoding reads them from one slot only; at
    most SHORT tokens are decoded at once.
    """

    layers: Sequence[LayerCache]
    slots: Sequence[int]
    starts: Sequence[int]
    length: int
    device: torch.device
    shared: int = 0
    positions: Tensor = field(init=False)
    rows: Tensor = field(init=False)
    chunks: int = field(init=False)
    _neighbours: bool = field(init=False)
    _targets: list[_Target] = field(init=False)
    _masks: dict[int | None, Tensor] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.rows = torch.tensor(self.slots, device=self.device)
        offsets = torch.arange(self.length, device=self.device)
        self.positions = torch.tensor(self.starts, device=self.device)[:, None] + offsets
        self.chunks = -(-(max(self.starts) + self.length) // CHUNK)
        first = self.slots[0]
        self._neighbours = list(self.slots) == list(range(first, first + len(self.slots)))
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

    def read(self, chunks: Sequence[Tensor]) -> list[Tensor]:
        """What the rows' slots hold, each dense: all shared chunks as one [1, kv_heads, shared · CHUNK,
        head_dim], then for each chunk [R, kv_heads, CHUNK, head_dim]."""
        one, count = self.slots[0], len(self.slots)
        common = [torch.cat([c[one, None] for c in chunks[: self.shared]], 2)] if self.shared else []
        own = chunks[self.shared : self.chunks]
        if self._neighbours:
            return common + [chunk[one : one + count] for chunk in own]
        return common + [chunk.index_select(0, self.rows) for chunk in own]

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

    def _target(self, chunk: int) -> _Target:
        rows, columns = torch.nonzero(self.positions // CHUNK == chunk, as_tuple=True)
        return _Target(chunk, rows, columns, self.rows[rows], self.positions[rows, columns] % CHUNK)


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
        return folded_attention(query, torch.cat(keys, 2), torch.cat(values, 2), mask, scores)
    folded = (query * scores.scaling).reshape(query.shape[0], key.shape[1], -1, query.shape[3])
    out = _decode(folded, keys, values, mask[..., placement.seen_whole(window) :], scores.cap)
    return out.reshape(query.shape).transpose(1, 2)


def _decode(
    query: Tensor, keys: Sequence[Tensor], values: Sequence[Tensor], mask: Tensor, cap: float | None
) -> Tensor:
    """[R, kv_heads, queries of one key head, head_dim], scaled, over chunks of keys and values.

    `mask` is of the last keys; all before them are seen.
    """
    scores = torch.cat([_product(query, chunk.transpose(2, 3)) for chunk in keys], -1)
    if cap is not None:
        scores = torch.tanh(scores / cap) * cap
    scores[..., scores.shape[-1] - mask.shape[-1] :] += mask
    # In the number format of the scores: softmax computes in float32 inside and rounds once.
    weights = torch.split(torch.softmax(scores, dim=-1), [chunk.shape[2] for chunk in values], -1)
    first, *others = map(_product, weights, values)
    for other in others:
        first += other
    return first


def _product(rows: Tensor, held: Tensor) -> Tensor:
    """[R, kv_heads, q, m] times [R or 1, kv_heads, m, n]; one matrix a key head where shared."""
    size, heads, count, _ = rows.shape
    if held.shape[0] == size:
        return torch.bmm(rows.flatten(0, 1), held.flatten(0, 1)).view(size, heads, count, -1)
    together = rows.transpose(0, 1).reshape(heads, size * count, -1)
    return torch.bmm(together, held[0]).view(heads, size, count, -1).transpose(0, 1)


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

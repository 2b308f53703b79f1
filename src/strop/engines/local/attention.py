"""Attention over key/value slots, for any transformers model that lets its attention be chosen.

The function registered here is called by the model's own layers with the new queries, keys and values
of a batch. It writes keys and values into the slots that `Placement` names, then attends over all that
the slots hold. K and V are never repeated for grouped queries: the queries of one key head are folded
into one matrix instead.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

NAME = "strop_slots"
HARMLESS = frozenset({"dropout", "position_ids", "position_embeddings", "use_cache", "is_causal", "cache"})


class UnsupportedAttention(Exception):
    """The model asks its attention for something that slots cannot do."""


@dataclass(slots=True, kw_only=True)
class Placement:
    """Where the R rows of one forward pass of T tokens each live.

    `keys`, `values`: one tensor a layer, [slots, kv_heads, capacity, head_dim]. `slots`: R distinct slot
    numbers. `positions`: [R, T], where each token goes; a token sees its slot's positions up to its own.
    `span`: number of keys read, above every position. Masks are made once and shared by all layers.
    """

    keys: Sequence[Tensor]
    values: Sequence[Tensor]
    slots: Sequence[int]
    positions: Tensor
    span: int
    rows: Tensor = field(init=False)
    aligned: bool = field(init=False)
    scattered: bool = field(init=False)
    lanes: int = field(init=False)
    masks: dict[int | None, Tensor] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        count, cover = len(self.slots), max(self.slots) + 1
        self.rows = torch.tensor(self.slots, device=self.positions.device)
        self.aligned = list(self.slots) == list(range(count))
        # Reading idle lanes is cheaper than copying keys, until few of the lanes are in use.
        self.scattered = not self.aligned and self.positions.shape[1] == 1 and 4 * count > cover
        self.lanes = cover if self.scattered else count

    def write(self, layer: int, key: Tensor, value: Tensor) -> None:
        """Put new keys and values, [R, kv_heads, T, head_dim], into their slots."""
        rows, positions = self.rows[:, None], self.positions
        self.keys[layer][rows, :, positions] = key.transpose(1, 2)
        self.values[layer][rows, :, positions] = value.transpose(1, 2)

    def read(self, held: Tensor) -> Tensor:
        """What the lanes hold of one layer: [lanes, kv_heads, span, head_dim]."""
        if self.aligned or self.scattered:
            return held[: self.lanes, :, : self.span]
        return held[:, :, : self.span].index_select(0, self.rows)

    def spread(self, rows: Tensor) -> Tensor:
        """[R, ...] rows moved to their lanes; lanes in no use hold zeros."""
        if not self.scattered:
            return rows
        lanes = rows.new_zeros((self.lanes, *rows.shape[1:]))
        lanes[self.rows] = rows
        return lanes

    def visible(self, window: int | None) -> Tensor:
        """[lanes, T, span] bool: which keys a token sees; `window` keeps only the last so many."""
        if window not in self.masks:
            keys = torch.arange(self.span, device=self.positions.device)
            own = self.spread(self.positions)[:, :, None]
            seen = keys <= own
            self.masks[window] = seen if window is None else seen & (keys > own - window)
        return self.masks[window]


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
    **asked: Any,
) -> tuple[Tensor, None]:
    """Attention of [R, heads, T, head_dim] queries over their slots; returns [R, T, heads, head_dim].

    Raises UnsupportedAttention where the model asks for more than causal or sliding-window attention.
    """
    extra = sorted(name for name, wish in asked.items() if wish is not None and name not in HARMLESS)
    if placement is None or attention_mask is not None or extra:
        raise UnsupportedAttention(", ".join(extra) or "attention without slots")
    layer = module.layer_idx
    assert isinstance(layer, int)
    placement.write(layer, key, value)
    keys, values = placement.read(placement.keys[layer]), placement.read(placement.values[layer])
    visible = placement.visible(sliding_window)
    if query.shape[2] == 1:
        return _decode(query, keys, values, placement, visible, scaling), None
    return _prefill(query, keys, values, visible, scaling), None


def _decode(
    query: Tensor, keys: Tensor, values: Tensor, placement: Placement, visible: Tensor, scaling: float
) -> Tensor:
    rows, heads, _, width = query.shape
    lanes, kv_heads, span, _ = keys.shape
    folded = placement.spread((query * scaling).view(rows, kv_heads, heads // kv_heads, width))
    folded = folded.reshape(lanes * kv_heads, -1, width)
    scores = torch.bmm(folded, keys.reshape(lanes * kv_heads, span, width).transpose(1, 2)).float()
    hidden = ~visible[:, None]
    scores.view(lanes, kv_heads, -1, span).masked_fill_(hidden, float("-inf"))
    weights = torch.softmax(scores, dim=-1).to(values.dtype)
    out = torch.bmm(weights, values.reshape(lanes * kv_heads, span, width)).view(lanes, 1, heads, width)
    return out[placement.rows] if placement.scattered else out


def _prefill(query: Tensor, keys: Tensor, values: Tensor, visible: Tensor, scaling: float) -> Tensor:
    rows, heads, length, width = query.shape
    kv_heads = keys.shape[1]
    folded = query.reshape(rows, kv_heads, -1, width)
    mask = visible[:, None].repeat(1, 1, heads // kv_heads, 1)
    out = F.scaled_dot_product_attention(folded, keys, values, attn_mask=mask, scale=scaling)
    return out.reshape(rows, heads, length, width).transpose(1, 2)


def install(model: Any) -> None:
    """Make `model` attend over slots. Without a mask function of the same name no mask is built."""
    ALL_ATTENTION_FUNCTIONS.register(NAME, slot_attention)
    model.set_attn_implementation(NAME)

"""Attention over a packed tree, branch by branch: no node looks at branches that are not its own.

A branch is a stretch of neighbouring nodes below one path of ancestors, so its queries meet the keys of
that path and their own only. With a dense mask every pair of nodes of the tree is computed: for six
attempts of 120 tokens each behind a prompt of 200, three times as many.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from strop.engines.local.attention import Scores, UnsupportedAttention, folded_attention, refuse_more
from strop.engines.local.tree import Branch

NAME = "strop_tree"


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchView:
    """One branch of a pack: its nodes [start, stop), and `seen`, the path above it and itself, by node.

    `seen` is None where that is all nodes before `stop`. `above` is the length of the path.
    """

    start: int
    stop: int
    seen: Tensor | None
    above: int
    device: torch.device
    masks: dict[tuple[int | None, int, torch.dtype], Tensor]

    def mask(self, window: int | None, repeats: int, dtype: torch.dtype) -> Tensor:
        """[repeats · n, m]: 0 where a node sees another, else the lowest number; shared by all layers."""
        key = (window, repeats, dtype)
        if key not in self.masks:
            seen = torch.arange(self.above + self.stop - self.start, device=self.device, dtype=torch.int32)
            # How far above each node each seen node stands; below 0 it stands under it.
            depth = seen[self.above :, None] - seen
            unseen = depth < 0 if window is None else (depth < 0) | (depth >= window)
            bias = torch.zeros(unseen.shape, dtype=dtype, device=unseen.device)
            self.masks[key] = bias.masked_fill_(unseen, torch.finfo(dtype).min).repeat(repeats, 1)
        return self.masks[key]

    def windows(self) -> set[int | None]:
        """The windows that layers have asked for so far; None: all before."""
        return {window for window, _, _ in self.masks}


def branch_views(branches: Sequence[Branch], device: torch.device) -> list[BranchView]:
    """The branches of a pack as the attention reads them."""
    views = []
    for branch in branches:
        own = torch.arange(branch.start, branch.stop)
        seen = torch.cat([torch.from_numpy(branch.path), own])
        views.append(
            BranchView(
                start=branch.start,
                stop=branch.stop,
                seen=None if len(seen) == branch.stop else seen.to(device),
                above=len(branch.path),
                device=device,
                masks={},
            )
        )
    return views


def tree_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float,
    branches: Sequence[BranchView] | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **asked: Any,
) -> tuple[Tensor, None]:
    """Attention of [1, heads, T, head_dim] queries along their own paths; returns [1, T, heads, head_dim].

    Raises UnsupportedAttention where the model asks for more than causal or sliding-window attention,
    with capped scores or without.
    """
    del module
    refuse_more(asked, attention_mask)
    if branches is None:
        raise UnsupportedAttention("attention without a tree")
    scores = Scores(scaling, softcap)
    out = [_along(branch, query, key, value, scores, sliding_window) for branch in branches]
    return torch.cat(out, dim=1), None


def _along(
    branch: BranchView, query: Tensor, key: Tensor, value: Tensor, scores: Scores, window: int | None
) -> Tensor:
    if branch.seen is None:
        key, value = key[:, :, : branch.stop], value[:, :, : branch.stop]
    else:
        key, value = key.index_select(2, branch.seen), value.index_select(2, branch.seen)
    mine = query[:, :, branch.start : branch.stop]
    mask = branch.mask(window, query.shape[1] // key.shape[1], query.dtype)
    return folded_attention(mine, key, value, mask, scores)


def install(model: Any) -> None:
    """Make a transformers causal LM attend along branches: it runs with `branches` only from then on.

    Without a mask function of the same name no mask is built. Raises UnsupportedAttention where the model
    does not let its attention be chosen.
    """
    if not model._supports_attention_backend:
        raise UnsupportedAttention("an attention that cannot be chosen")
    ALL_ATTENTION_FUNCTIONS.register(NAME, tree_attention)
    model.set_attn_implementation(NAME)

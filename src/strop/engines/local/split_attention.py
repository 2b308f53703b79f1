"""Attention along branches for reading only: what stands above a branch needs no mask, and is apart.

A mask over all that a branch sees is as large as its scores: for long rows more than the keys and values
themselves. A branch's own nodes need a triangle, the same for all branches of its length; what is above is
seen whole. The two results are one by their sums of exponentials. On the CPU, in float32.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from strop.engines.local.tree import Branch

_flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork:
    """A branch: nodes [start, stop), the path above it, and the triangle [repeats · n, n] of its own nodes.

    `path` None: all nodes before `above`; `above` is how many there are.
    """

    start: int
    stop: int
    path: Tensor | None
    above: int
    triangle: Tensor

    def over(self, nodes: Tensor) -> Tensor:
        """The path's part of [1, heads, T, d]."""
        return nodes[:, :, : self.above] if self.path is None else nodes.index_select(2, self.path)


def forks(branches: Sequence[Branch], repeats: int) -> list[Fork]:
    """The branches of a tree; `repeats` query heads share a key head."""
    triangles: dict[int, Tensor] = {}
    made = []
    for branch in branches:
        size, above = branch.stop - branch.start, len(branch.path)
        if size not in triangles:
            triangles[size] = _triangle(size, repeats)
        # A path goes down, so one that ends at its length less one leaves no node out.
        whole = above == 0 or int(branch.path[-1]) == above - 1
        path = None if whole else torch.from_numpy(branch.path)
        made.append(
            Fork(start=branch.start, stop=branch.stop, path=path, above=above, triangle=triangles[size])
        )
    return made


def attend(query: Tensor, key: Tensor, value: Tensor, branches: Sequence[Fork], scaling: float) -> Tensor:
    """[T, heads, d] of queries [1, heads, T, d] over keys and values [1, kv_heads, T, d]."""
    out = query.new_empty((query.shape[2], query.shape[1], query.shape[3]))
    for branch in branches:
        own = slice(branch.start, branch.stop)
        # Heads that share a key head as one block: keys are not repeated.
        folded = query[:, :, own].reshape(1, key.shape[1], -1, query.shape[3])
        found, total = _flash(
            folded, key[:, :, own], value[:, :, own], 0.0, False, attn_mask=branch.triangle, scale=scaling
        )
        if branch.above:
            over, more = _flash(folded, branch.over(key), branch.over(value), 0.0, False, scale=scaling)
            found = found.lerp_(over, torch.sigmoid(more - total)[..., None])
        out[own] = found.reshape(query.shape[1], -1, query.shape[3]).transpose(0, 1)
    return out


def _triangle(size: int, repeats: int) -> Tensor:
    """0 where a node sees another, else the lowest number."""
    bias = torch.zeros((size, size))
    later = torch.ones((size, size), dtype=torch.bool).triu_(1)
    return bias.masked_fill_(later, torch.finfo(bias.dtype).min).repeat(repeats, 1)

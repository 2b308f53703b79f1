"""The tree as a block mask of FlexAttention, for CUDA: blocks that nobody sees are skipped.

A node sees itself and its ancestors. Numbered in depth-first order, the nodes below a node are neighbours:
node i sees node j exactly where enter[j] <= enter[i] < leave[j], four numbers to read instead of [T, T].
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from strop.engines.local.tree import Pack

MaskMod = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def intervals(packed: Pack) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """`enter`, `leave` int64 [T]: at or below node j are the nodes that enter in [enter[j], leave[j])."""
    parent = np.arange(-1, len(packed.ids) - 1)
    for branch in packed.branches:
        parent[branch.start] = branch.path[-1] if len(branch.path) else -1
    size = np.ones(len(parent), dtype=np.int64)
    # A node comes after its parent, so backwards every node is whole before it counts for its parent.
    for node in range(len(parent) - 1, -1, -1):
        if parent[node] >= 0:
            size[parent[node]] += size[node]
    enter, free, roots = np.zeros(len(parent), dtype=np.int64), np.zeros(len(parent), dtype=np.int64), 0
    for node, above in enumerate(parent):
        if above < 0:
            enter[node], roots = roots, roots + size[node]
        else:
            enter[node] = free[above]
            free[above] += size[node]
        free[node] = enter[node] + 1
    return enter, enter + size


def mask_mod(packed: Pack, window: int | None, device: torch.device) -> MaskMod:
    """Whether node `q` sees node `k`, at most `window` tokens of its row back, itself included."""
    enter, leave = (torch.from_numpy(numbers).to(device) for numbers in intervals(packed))
    depth = torch.from_numpy(packed.positions).to(device)

    def sees(batch: Tensor, head: Tensor, q: Tensor, k: Tensor) -> Tensor:
        del batch, head
        above = (enter[k] <= enter[q]) & (enter[q] < leave[k])
        return above if window is None else above & (depth[q] - depth[k] < window)

    return sees


def block_mask(packed: Pack, window: int | None, device: torch.device) -> Any:
    """The `BlockMask` of a pack, which transformers' own FlexAttention takes as its attention mask."""
    from torch.nn.attention.flex_attention import create_block_mask

    size = len(packed.ids)
    return create_block_mask(
        mask_mod(packed, window, device), B=None, H=None, Q_LEN=size, KV_LEN=size, device=device
    )

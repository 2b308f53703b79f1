"""Attention of a part of a cut, branch by branch, over held keys and the part's own; on the CPU, in float32.

Autograd would keep a copy of the keys and values of each branch's path. Here they are gathered again in the
backward pass, and what is kept are the queries, keys and values themselves, the result, and a number a row.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from strop.engines.local.tree import Branch

_forward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A branch as attention reads it: nodes [start, stop) of the part.

    `seen` are the nodes it sees, `reach` of them, counted from the first held one; None: all before its
    end. `bias` [repeats · n, reach] is 0 where a node sees another, else the lowest number.
    """

    start: int
    stop: int
    seen: Tensor | None
    reach: int
    bias: Tensor

    def of(self, nodes: Tensor) -> Tensor:
        """What the branch sees of [1, heads, all, d]."""
        return nodes[:, :, : self.reach] if self.seen is None else nodes.index_select(2, self.seen)

    def add_to(self, total: Tensor, nodes: Tensor) -> None:
        """Add [1, heads, reach, d] where `of` took it from."""
        if self.seen is None:
            total[:, :, : self.reach] += nodes
        else:
            total.index_add_(2, self.seen, nodes)


def views(branches: Sequence[Branch], above: int, repeats: int, device: torch.device) -> list[View]:
    """The branches of a part under `above` held nodes; `repeats` query heads share a key head."""
    made = []
    for branch in branches:
        size = branch.stop - branch.start
        seen = np.concatenate([branch.path, np.arange(above + branch.start, above + branch.stop)])
        bias = torch.zeros((size, len(seen)), device=device)
        later = torch.ones((size, size), dtype=torch.bool, device=device).triu_(1)
        bias[:, len(branch.path) :].masked_fill_(later, torch.finfo(bias.dtype).min)
        whole = len(seen) == above + branch.stop
        made.append(
            View(
                start=branch.start,
                stop=branch.stop,
                seen=None if whole else torch.from_numpy(seen).to(device),
                reach=len(seen),
                bias=bias.repeat(repeats, 1),
            )
        )
    return made


def attend(
    query: Tensor,
    own: tuple[Tensor, Tensor],
    held: tuple[Tensor, Tensor] | None,
    branches: Sequence[View],
    scaling: float,
) -> Tensor:
    """[1, T, heads, d] of queries [1, heads, T, d] over `own` keys and values [1, kv_heads, T, d] and `held`
    ones before them."""
    held_keys, held_values = held or (None, None)
    out = _Attend.apply(query, *own, held_keys, held_values, branches, scaling)  # type: ignore[no-untyped-call]
    return cast(Tensor, out)


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        held_keys: Tensor | None,
        held_values: Tensor | None,
        branches: Sequence[View],
        scaling: float,
    ) -> Tensor:
        keys, values = _joined(held_keys, key), _joined(held_values, value)
        out = query.new_empty((1, query.shape[2], query.shape[1], query.shape[3]))
        sums = []
        for view in branches:
            k, v = view.of(keys), view.of(values)
            found, total = _forward(
                _folded(query, view, k.shape[1]), k, v, 0.0, False, attn_mask=view.bias, scale=scaling
            )
            out[:, view.start : view.stop] = _unfolded(found, query.shape[1]).transpose(1, 2)
            sums.append(total)
        ctx.save_for_backward(query, key, value, held_keys, held_values, out, *sums)
        ctx.branches, ctx.scaling = branches, scaling
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        query, key, value, held_keys, held_values, out, *sums = ctx.saved_tensors
        keys, values = _joined(held_keys, key), _joined(held_values, value)
        grad, out = grads[0].transpose(1, 2), out.transpose(1, 2)
        dq, dk, dv = (torch.empty_like(query), torch.zeros_like(keys), torch.zeros_like(values))
        for view, total in zip(ctx.branches, sums, strict=True):
            k, v = view.of(keys), view.of(values)
            mine, given, result = (_folded(each, view, k.shape[1]) for each in (query, grad, out))
            found = _backward(
                given, mine, k, v, result, total, 0.0, False, attn_mask=view.bias, scale=ctx.scaling
            )
            dq[:, :, view.start : view.stop] = _unfolded(found[0], query.shape[1])
            view.add_to(dk, found[1])
            view.add_to(dv, found[2])
        above = dk.shape[2] - key.shape[2]
        of_held = (dk[:, :, :above], dv[:, :, :above]) if above else (None, None)
        return dq, dk[:, :, above:], dv[:, :, above:], *of_held, None, None


def _joined(held: Tensor | None, own: Tensor) -> Tensor:
    return own if held is None else torch.cat([held, own], 2)


def _folded(heads: Tensor, view: View, kv_heads: int) -> Tensor:
    """A branch's [1, heads, n, d], heads that share a key head as one block: keys are not repeated."""
    return heads[:, :, view.start : view.stop].reshape(1, kv_heads, -1, heads.shape[3])


def _unfolded(folded: Tensor, heads: int) -> Tensor:
    return folded.reshape(1, heads, -1, folded.shape[3])

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

from strop.engines.local.scratch import Scratch
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

    def of(self, nodes: Tensor, into: Tensor) -> Tensor:
        """What the branch sees of [all, heads, d], as [1, heads, reach, d]; in `into` if copied."""
        first = nodes[: self.reach]
        seen = first if self.seen is None else torch.index_select(nodes, 0, self.seen, out=into)
        return seen.transpose(0, 1)[None]

    def add_to(self, total: Tensor, nodes: Tensor) -> None:
        """Add [1, heads, reach, d] where `of` took it from."""
        if self.seen is None:
            total[: self.reach] += nodes[0].transpose(0, 1)
        else:
            total.index_add_(0, self.seen, nodes[0].transpose(0, 1))


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """Who sees whom in a part, its branches; `scaling` of the scores, and where numbers may stand."""

    branches: Sequence[View]
    scaling: float
    scratch: Scratch


def attend(
    query: Tensor, own: tuple[Tensor, Tensor], held: tuple[Tensor, Tensor] | None, sight: Sight
) -> Tensor:
    """[T, heads, d] of queries [T, heads, d] over `own` keys and values [T, kv_heads, d] and `held` ones
    before them."""
    held_keys, held_values = held or (None, None)
    return cast(Tensor, _Attend.apply(query, *own, held_keys, held_values, sight))  # type: ignore[no-untyped-call]


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        held_keys: Tensor | None,
        held_values: Tensor | None,
        sight: Sight,
    ) -> Tensor:
        joined = _joined((held_keys, held_values), (key, value), sight.scratch)
        out = torch.empty_like(query)
        sums = []
        for view in sight.branches:
            k, v = _seen(view, joined, sight.scratch)
            (mine,) = _folded(view, key.shape[1], sight.scratch, query=query)
            found, total = _forward(mine, k, v, 0.0, False, attn_mask=view.bias, scale=sight.scaling)
            _unfold(found, out[view.start : view.stop])
            sums.append(total)
        ctx.save_for_backward(query, key, value, held_keys, held_values, out, *sums)
        ctx.sight = sight
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        query, key, value, held_keys, held_values, out, *sums = ctx.saved_tensors
        sight: Sight = ctx.sight
        joined = _joined((held_keys, held_values), (key, value), sight.scratch)
        dq, dk, dv = torch.empty_like(query), *(torch.zeros_like(each) for each in joined)
        for view, total in zip(sight.branches, sums, strict=True):
            k, v = _seen(view, joined, sight.scratch)
            mine, given, result = _folded(
                view, key.shape[1], sight.scratch, query=query, grad=grads[0], out=out
            )
            found = _backward(
                given, mine, k, v, result, total, 0.0, False, attn_mask=view.bias, scale=sight.scaling
            )
            _unfold(found[0], dq[view.start : view.stop])
            view.add_to(dk, found[1])
            view.add_to(dv, found[2])
        above = len(dk) - len(key)
        of_held = (dk[:above], dv[:above]) if above else (None, None)
        return dq, dk[above:], dv[above:], *of_held, None


def _joined(held: Sequence[Tensor | None], own: Sequence[Tensor], scratch: Scratch) -> tuple[Tensor, ...]:
    """Keys and values of held nodes and own ones, [all, kv_heads, d]."""
    made = []
    for name, before, after in zip(("keys", "values"), held, own, strict=True):
        if before is not None:
            into = scratch(name, len(before) + len(after), *after.shape[1:])
            after = torch.cat([before, after], out=into)
        made.append(after)
    return tuple(made)


def _seen(view: View, joined: Sequence[Tensor], scratch: Scratch) -> list[Tensor]:
    """Keys and values that a branch sees, [1, kv_heads, reach, d]."""
    return [
        view.of(each, scratch(f"seen {name}", view.reach, *each.shape[1:]))
        for name, each in zip(("keys", "values"), joined, strict=True)
    ]


def _folded(view: View, kv_heads: int, scratch: Scratch, **heads: Tensor) -> list[Tensor]:
    """A branch's [n, heads, d] of each, as [1, kv_heads, repeats · n, d]: heads that share a key head are one
    block, and keys are not repeated."""
    made = []
    for name, each in heads.items():
        part = each[view.start : view.stop]
        part = part.reshape(len(part), kv_heads, -1, each.shape[2]).permute(1, 2, 0, 3)
        made.append(scratch(f"folded {name}", *part.shape).copy_(part).view(1, kv_heads, -1, each.shape[2]))
    return made


def _unfold(folded: Tensor, into: Tensor) -> None:
    """Write [1, kv_heads, repeats · n, d] into [n, heads, d]."""
    nodes, kv_heads, width = len(into), folded.shape[1], folded.shape[3]
    apart = folded.view(kv_heads, -1, nodes, width).permute(2, 0, 1, 3)
    into.view(nodes, kv_heads, -1, width).copy_(apart)

"""Several models over one tree, layer by layer, for reading only: layers that are alike are computed once.

A policy that was trained from some block on has the blocks below from its reference, and a ladder of
checkpoints has them from each other. Where two part, each goes on by itself, two side by side. All work on a
piece of the nodes at a time, so that what a layer needs besides states, keys and values stays small.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from strop.engines.local.blocks import Norm, Projection, Turn, is_plain
from strop.engines.local.halves import side_by_side
from strop.engines.local.head import body_of
from strop.engines.local.pages import Pages, Span, give_back
from strop.engines.local.reading import TOLERANCE, Reader, probe_rows
from strop.engines.local.split_attention import Fork, attend, forks
from strop.engines.local.tree import Pack

PIECE = 512
"""Nodes whose projections are computed at once: few enough that their numbers stay in the cache."""


class _Linear:
    """Projections of the same input: [n, out] each of [n, in], under one adapter or none."""

    def __init__(self, *modules: Any) -> None:
        found = [Projection.of(module) for module in modules]
        self.weights = [layer.weight for layer in found]
        self._biases = [layer.bias for layer in found]
        downs = [layer.a if layer.b is not None and layer.b.any() else None for layer in found]
        self._ranks = [0 if a is None else len(a) for a in downs]
        some = [a for a in downs if a is not None]
        self._down = torch.cat(some) if some else None
        self._ups = [
            layer.b * layer.scale if layer.b is not None and rank else None
            for layer, rank in zip(found, self._ranks, strict=True)
        ]

    def __call__(self, x: Tensor) -> list[Tensor]:
        out = [F.linear(x, *pair) for pair in zip(self.weights, self._biases, strict=True)]
        if self._down is None:
            return out
        inner = torch.split(x @ self._down.T, self._ranks, dim=1)
        for own, low, up in zip(out, inner, self._ups, strict=True):
            if up is not None:
                own.addmm_(low, up.T)
        return out

    def is_like(self, other: "_Linear") -> bool:
        """Whether it is the same base layer under the same adapter."""
        same = all(a.data_ptr() == b.data_ptr() for a, b in zip(self.weights, other.weights, strict=True))
        if not same or self._ranks != other._ranks:
            return False
        pairs = zip((self._down, *self._ups), (other._down, *other._ups), strict=True)
        return all(_equal(a, b) for a, b in pairs)


class _Layer:
    """One block: its weights, and their pages."""

    def __init__(self, layer: Any, epsilon: float, pages: Pages) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        self.norms = [
            Norm(each.weight, epsilon) for each in (layer.input_layernorm, layer.post_attention_layernorm)
        ]
        self.scaling: float = attention.scaling
        self.read = _Linear(attention.q_proj, attention.k_proj, attention.v_proj)
        self.out = _Linear(attention.o_proj)
        self.gate_up = _Linear(mlp.gate_proj, mlp.up_proj)
        self.down = _Linear(mlp.down_proj)
        self._width: int = attention.head_dim
        self.pages: list[Span] = pages.of(w for each in self._linears for w in each.weights)

    @property
    def _linears(self) -> tuple[_Linear, ...]:
        return self.read, self.out, self.gate_up, self.down

    def is_like(self, other: "_Layer") -> bool:
        """Whether it gives the same of the same states."""
        return all(map(_Linear.is_like, self._linears, other._linears)) and all(
            a.weight.data_ptr() == b.weight.data_ptr() for a, b in zip(self.norms, other.norms, strict=True)
        )

    def run(self, states: Tensor, turn: Turn, branches: Sequence[Fork]) -> None:
        """Turn states [T, d] into those after the block, in place."""
        query, key, value = self._attention_inputs(states, turn)
        seen = attend(query, key, value, branches, self.scaling).flatten(1)
        del query, key, value
        for part in _pieces(len(states)):
            own = states[part]
            own += self.out(seen[part])[0]
            gate, up = self.gate_up(self.norms[1](own)[0])
            own += self.down(F.silu(gate, inplace=True).mul_(up))[0]

    def _attention_inputs(self, states: Tensor, turn: Turn) -> list[Tensor]:
        """Queries, keys and values, [1, heads, T, d] each."""
        whole: list[Tensor] = []
        for part in _pieces(len(states)):
            read = self.read(self.norms[0](states[part])[0])
            query, key, value = (flat.view(len(flat), -1, self._width) for flat in read)
            own = Turn(turn.cos[part], turn.sin[part])
            ready = [each.transpose(0, 1) for each in (own.by_(query), own.by_(key), value)]
            whole = whole or [states.new_empty((1, len(each), len(states), self._width)) for each in ready]
            for into, each in zip(whole, ready, strict=True):
                into[0, :, part] = each
        return whole


class _Body:
    """One model's embedding, blocks and final norm."""

    def __init__(self, model: Any, pages: Pages) -> None:
        body = body_of(model)
        epsilon: float = body.config.rms_norm_eps
        self.embedding: Tensor = body.embed_tokens.weight
        self.layers = [_Layer(layer, epsilon, pages) for layer in body.layers]
        self.repeats: int = body.layers[0].self_attn.num_key_value_groups
        self.pages = pages.of([self.embedding])
        self._rotary, self._norm = body.rotary_emb, Norm(body.norm.weight, epsilon)

    def depth_with(self, other: "_Body") -> int:
        """How many blocks from the first on it has in common with another; -1: not even the embedding."""
        if self.embedding.data_ptr() != other.embedding.data_ptr():
            return -1
        alike = [a.is_like(b) for a, b in zip(self.layers, other.layers, strict=True)]
        return alike.index(False) if False in alike else len(alike)

    def embedded(self, ids: Tensor) -> Tensor:
        states = F.embedding(ids, self.embedding)
        give_back(self.pages)
        return states

    def turn(self, positions: Tensor) -> Turn:
        cos, sin = self._rotary(self.embedding[:1], positions[None])
        return Turn.of(cos[0], sin[0])

    def normed(self, states: Tensor) -> Tensor:
        return self._norm(states)[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stage:
    """Blocks [start, stop), in which model i does what model `leads[i]` does, the first of its like."""

    start: int
    stop: int
    leads: tuple[int, ...]


class Lockstep:
    """The bodies of plain float32 Llama models on the CPU; see `lockstep_for`."""

    def __init__(self, models: Sequence[Any]) -> None:
        pages = Pages()
        self._bodies = [_Body(model, pages) for model in models]
        self.stages = _stages(self._bodies)

    def hidden(self, packed: Pack) -> list[Tensor]:
        """[T, d] states after the final norm under each model; one tensor for models that are the same."""
        ids, positions = torch.from_numpy(packed.ids), torch.from_numpy(packed.positions)
        branches = {body.repeats: forks(packed.branches, body.repeats) for body in self._bodies}
        turns = [body.turn(positions) for body in self._bodies]
        found = [torch.empty(0) for _ in self._bodies]

        def through(stage: _Stage, lead: int) -> Tensor:
            body = self._bodies[lead]
            states = found[lead].clone() if stage.start else body.embedded(ids)
            for layer in body.layers[stage.start : stage.stop]:
                layer.run(states, turns[lead], branches[body.repeats])
                give_back(layer.pages)
            return body.normed(states) if stage is self.stages[-1] else states

        for stage in self.stages:
            leads = sorted(set(stage.leads))
            ran = dict(zip(leads, side_by_side(partial(through, stage), leads), strict=True))
            found = [ran[lead] for lead in stage.leads]
        return found


def _stages(bodies: Sequence[_Body]) -> tuple[_Stage, ...]:
    """Blocks in which the same models go together, stretch by stretch."""
    common = [[mine.depth_with(other) for other in bodies[:index]] for index, mine in enumerate(bodies)]

    def leads(block: int) -> tuple[int, ...]:
        return tuple(
            next((first for first, depth in enumerate(depths) if depth > block), index)
            for index, depths in enumerate(common)
        )

    depth = max(len(body.layers) for body in bodies)
    starts = [block for block in range(depth) if block == 0 or leads(block) != leads(block - 1)]
    return tuple(
        _Stage(start=a, stop=b, leads=leads(a)) for a, b in zip(starts, [*starts[1:], depth], strict=True)
    )


def _pieces(count: int) -> list[slice]:
    return [slice(start, min(count, start + PIECE)) for start in range(0, count, PIECE)]


def _equal(one: Tensor | None, other: Tensor | None) -> bool:
    return one is other or (one is not None and other is not None and torch.equal(one, other))


@torch.inference_mode()
def lockstep_for(models: Sequence[Any], readers: Sequence[Reader]) -> Lockstep | None:
    """The lockstep of models that are plain, if it says what each one's reader says; else None."""
    if not all(is_plain(model) for model in models) or any(reader.way != "branches" for reader in readers):
        return None
    lockstep = Lockstep(models)
    (packed,) = readers[0].packs(probe_rows(min(_vocabulary(model) for model in models)), 100)
    for got, reader in zip(lockstep.hidden(packed), readers, strict=True):
        expected = reader.hidden(packed)
        apart = (got - expected).norm(dim=1) / expected.norm(dim=1)
        if not bool((apart <= TOLERANCE[expected.dtype]).all()):
            return None
    return lockstep


def _vocabulary(model: Any) -> int:
    return int(model.get_input_embeddings().weight.shape[0])

"""Llama's blocks with LoRA for training, keeping little for the backward pass.

Run module by module under autograd, a layer of SmolLM2 keeps some 20,000 numbers a token: every norm keeps
its input twice, every product its factors. Here it keeps what cannot be had again by elementwise work: its
input, what attention needs, the states between attention and MLP, and the two factors of the MLP's product,
5,900 numbers. Gradients are those of the adapter and of the input; the base is frozen.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from peft import PeftModel
from torch import Tensor

KINDS = ("llama", "qwen2", "mistral")

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""Layer, query [1, heads, T, d], key and value [1, kv_heads, T, d] to [1, T, heads, d]."""


class Projection(NamedTuple):
    """x W^T + bias + scale (x A^T) B^T; A and B are None where the layer carries no LoRA."""

    weight: Tensor
    bias: Tensor | None
    scale: float

    @staticmethod
    def of(layer: Any) -> tuple["Projection", Tensor | None, Tensor | None]:
        """A linear layer, or one that PEFT wraps, under its active adapter; and its A and B."""
        if not hasattr(layer, "lora_A"):
            return Projection(layer.weight, layer.bias, 1.0), None, None
        (name,) = layer.active_adapters
        base = layer.base_layer
        if name not in layer.lora_A:
            return Projection(base.weight, base.bias, 1.0), None, None
        own = Projection(base.weight, base.bias, layer.scaling[name])
        return own, layer.lora_A[name].weight, layer.lora_B[name].weight


def project(x: Tensor, layer: Projection, a: Tensor | None, b: Tensor | None) -> Tensor:
    """[T, out] of [T, in]."""
    out = F.linear(x, layer.weight, layer.bias)
    if a is not None and b is not None:
        out.addmm_(x @ a.T, b.T, alpha=layer.scale)
    return out


class Gradients(NamedTuple):
    """Of a projection's input, of A and of B; what is not asked for is None."""

    x: Tensor | None
    a: Tensor | None
    b: Tensor | None


def project_back(
    x: Tensor, grad: Tensor, layer: Projection, lora: Sequence[Tensor | None], wanted: Sequence[bool]
) -> Gradients:
    """Gradients of `project`, given that of its output [T, out]; `wanted`: of x, of A, of B."""
    a, b = lora
    dx = grad @ layer.weight if wanted[0] else None
    if a is None or b is None:
        return Gradients(dx, None, None)
    inner = (grad @ b) * layer.scale
    if dx is not None:
        dx.addmm_(inner, a)
    da = inner.T @ x if wanted[1] else None
    db = (grad.T @ (x @ a.T)).mul_(layer.scale) if wanted[2] else None
    return Gradients(dx, da, db)


def normed(x: Tensor, weight: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """RMS norm of [T, d], and the [T, 1] factors that it multiplies x by."""
    factor = torch.rsqrt(x.square().mean(-1, keepdim=True) + epsilon)
    return (x * factor).mul_(weight), factor


def normed_back(x: Tensor, grad: Tensor, weight: Tensor, factor: Tensor) -> Tensor:
    """Gradient of x, given that of the norm's output. Overwrites `grad`."""
    grad = grad.mul_(weight)
    shared = (grad * x).mean(-1, keepdim=True).mul_(factor.square())
    return grad.sub_(x * shared).mul_(factor)


class _Read(torch.autograd.Function):
    """Norm, then projections of the same input: x to (x_1, ...). Keeps x."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, norm: Tensor, epsilon: float, layers: Sequence[Projection], *lora: Tensor | None
    ) -> tuple[Tensor, ...]:
        ctx.save_for_backward(x, norm, *lora)
        ctx.epsilon, ctx.layers = epsilon, layers
        inner, _ = normed(x, norm, epsilon)
        pairs = zip(lora[::2], lora[1::2], strict=True)
        return tuple(project(inner, layer, *pair) for layer, pair in zip(layers, pairs, strict=True))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        x, norm, *lora = ctx.saved_tensors
        inner, factor = normed(x, norm, ctx.epsilon)
        total: Tensor | None = None
        of_lora: list[Tensor | None] = []
        for index, (layer, grad) in enumerate(zip(ctx.layers, grads, strict=True)):
            pair = slice(2 * index, 2 * index + 2)
            wanted = (ctx.needs_input_grad[0], *ctx.needs_input_grad[4:][pair])
            dx, da, db = project_back(inner, grad, layer, lora[pair], wanted)
            of_lora += [da, db]
            if dx is not None:
                total = dx if total is None else total.add_(dx)
        dx = None if total is None else normed_back(x, total, norm, factor)
        return dx, None, None, None, *of_lora


class _Add(torch.autograd.Function):
    """residual + projection of x. Keeps x."""

    @staticmethod
    def forward(
        ctx: Any, residual: Tensor, x: Tensor, layer: Projection, a: Tensor | None, b: Tensor | None
    ) -> Tensor:
        ctx.save_for_backward(x, a, b)
        ctx.layer = layer
        return project(x, layer, a, b).add_(residual)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        x, *lora = ctx.saved_tensors
        dx, da, db = project_back(
            x, grads[0], ctx.layer, lora, ctx.needs_input_grad[1:2] + ctx.needs_input_grad[3:]
        )
        return grads[0], dx, None, da, db


class _MLP(torch.autograd.Function):
    """x + down(silu(gate(norm x)) · up(norm x)). Keeps x, gate and up."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, norm: Tensor, epsilon: float, layers: Sequence[Projection], *lora: Tensor | None
    ) -> Tensor:
        inner, _ = normed(x, norm, epsilon)
        gate, up = (project(inner, layers[0], *lora[:2]), project(inner, layers[1], *lora[2:4]))
        ctx.save_for_backward(x, norm, gate, up, *lora)
        ctx.epsilon, ctx.layers = epsilon, layers
        return project(F.silu(gate).mul_(up), layers[2], *lora[4:]).add_(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        x, norm, gate, up, *lora = ctx.saved_tensors
        of_x, *of_lora = ctx.needs_input_grad[:1] + ctx.needs_input_grad[4:]
        opened = F.silu(gate)
        product, *down = project_back(opened * up, grads[0], ctx.layers[2], lora[4:], (True, *of_lora[4:]))
        assert product is not None
        d_up = opened.mul_(product)
        d_gate = torch.ops.aten.silu_backward(product.mul_(up), gate)
        inner, factor = normed(x, norm, ctx.epsilon)
        one, *of_gate = project_back(inner, d_gate, ctx.layers[0], lora[:2], (of_x, *of_lora[:2]))
        two, *of_up = project_back(inner, d_up, ctx.layers[1], lora[2:4], (of_x, *of_lora[2:4]))
        dx = None
        if one is not None and two is not None:
            dx = normed_back(x, one.add_(two), norm, factor).add_(grads[0])
        return dx, None, None, None, *of_gate, *of_up, *down


class Blocks:
    """The body of a Llama-shaped model under PEFT. float32 weights only."""

    def __init__(self, body: Any) -> None:
        self._body = body
        self._epsilon: float = body.config.rms_norm_eps
        attention = body.layers[0].self_attn
        self.scaling: float = attention.scaling
        self.width: int = attention.head_dim
        self.repeats: int = attention.num_key_value_groups

    def hidden(self, ids: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """[T, d] states after the final norm, of tokens [T] at positions [T]; `attend`: who sees whom."""
        states = F.embedding(ids, self._body.embed_tokens.weight)
        cos, sin = (part[0] for part in self._body.rotary_emb(states[None], positions[None]))
        for index, layer in enumerate(self._body.layers):
            states = self._block(index, layer, states, (cos, sin), attend)
        return cast(Tensor, self._body.norm(states))

    def _block(
        self, index: int, layer: Any, states: Tensor, turn: tuple[Tensor, Tensor], attend: Attend
    ) -> Tensor:
        attention, mlp = layer.self_attn, layer.mlp
        query, key, value = self._read(
            states, layer.input_layernorm.weight, (attention.q_proj, attention.k_proj, attention.v_proj)
        )
        query, key = (turned(self._heads(each), turn)[None] for each in (query, key))
        seen = attend(index, query, key, self._heads(value)[None]).reshape(len(states), -1)
        own, a, b = Projection.of(attention.o_proj)
        states = _Add.apply(states, seen, own, a, b)  # type: ignore[no-untyped-call]
        layers, lora = _apart((mlp.gate_proj, mlp.up_proj, mlp.down_proj))
        norm = layer.post_attention_layernorm.weight
        return cast(Tensor, _MLP.apply(states, norm, self._epsilon, layers, *lora))  # type: ignore[no-untyped-call]

    def _read(self, states: Tensor, norm: Tensor, modules: Sequence[Any]) -> tuple[Tensor, ...]:
        layers, lora = _apart(modules)
        read = _Read.apply(states, norm, self._epsilon, layers, *lora)  # type: ignore[no-untyped-call]
        return cast(tuple[Tensor, ...], read)

    def _heads(self, flat: Tensor) -> Tensor:
        return flat.view(len(flat), -1, self.width).transpose(0, 1)


def blocks_for(model: PeftModel) -> Blocks | None:
    """The blocks of a model that `is_plain`; None for any other.

    The caller must have checked the result against the model's own forward pass.
    """
    base: Any = model.get_base_model()
    return Blocks(base.get_decoder()) if is_plain(base) else None


def is_plain(model: Any) -> bool:
    """Whether it is a float32 model on the CPU whose layers are plain Llama layers, LoRA on them or not."""
    plain = model.config.model_type in KINDS and getattr(model.config, "hidden_act", "") == "silu"
    on_cpu = model.dtype == torch.float32 and model.device.type == "cpu"
    return bool(plain and on_cpu and not _windowed(model.get_decoder()))


def _windowed(body: Any) -> bool:
    """Whether some layer sees the last tokens only: Mistral says so in its config, Qwen2 in its layers."""
    own = [getattr(layer.self_attn, "sliding_window", None) for layer in body.layers]
    everywhere = body.config.sliding_window if body.config.model_type == "mistral" else None
    return everywhere is not None or any(window is not None for window in own)


def _apart(modules: Sequence[Any]) -> tuple[list[Projection], list[Tensor | None]]:
    layers: list[Projection] = []
    lora: list[Tensor | None] = []
    for module in modules:
        own, a, b = Projection.of(module)
        layers.append(own)
        lora += [a, b]
    return layers, lora


def turned(heads: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    """Rotary embedding of [heads, T, d]."""
    cos, sin = turn
    low, high = heads.chunk(2, dim=-1)
    return heads * cos + torch.cat((-high, low), dim=-1) * sin

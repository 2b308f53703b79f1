"""Llama's blocks with LoRA for training, keeping little for the backward pass.

Run module by module under autograd, a layer of SmolLM2 keeps some 20,000 numbers a token: every norm keeps
its input twice, every product its factors. Here it keeps what cannot be had again by elementwise work: its
input, what attention needs, the states between attention and MLP, and the two factors of the MLP's product,
5,900 numbers. All else is in scratch memory. Gradients are those of the adapter and of the input; the base
is frozen.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from peft import PeftModel
from torch import Tensor

from strop.engines.local.scratch import Scratch

KINDS = ("llama", "qwen2", "mistral")

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""Layer, query [T, heads, d], key and value [T, kv_heads, d] to [T, heads, d]."""

_TURNED = (True, True, False)
"""Which of query, key and value are turned by their position."""


class Projection(NamedTuple):
    """x W^T + bias + scale (x A^T) B^T; A and B are None where the layer carries no LoRA."""

    weight: Tensor
    bias: Tensor | None
    scale: float = 1.0
    a: Tensor | None = None
    b: Tensor | None = None

    @staticmethod
    def of(layer: Any) -> "Projection":
        """A linear layer, or one that PEFT wraps, under its active adapter."""
        if not hasattr(layer, "lora_A"):
            return Projection(layer.weight, layer.bias)
        (name,) = layer.active_adapters
        base = layer.base_layer
        if name not in layer.lora_A:
            return Projection(base.weight, base.bias)
        low, high = layer.lora_A[name].weight, layer.lora_B[name].weight
        return Projection(base.weight, base.bias, layer.scaling[name], low, high)

    def __call__(self, x: Tensor) -> Tensor:
        """[T, out] of [T, in]."""
        out = F.linear(x, self.weight, self.bias)
        if self.a is not None and self.b is not None:
            out.addmm_(x @ self.a.T, self.b.T, alpha=self.scale)
        return out

    def back(
        self, x: Tensor, grad: Tensor, dx: Tensor | None, *, more: bool = False
    ) -> tuple[Tensor | None, Tensor | None]:
        """Gradients of A and B, of x and the output's gradient [T, out]; None where not trained.

        The gradient of x is written to `dx` where that is given, or added to it: `more`.
        """
        if dx is not None:
            dx.addmm_(grad, self.weight, beta=int(more))
        if self.a is None or self.b is None:
            return None, None
        inner = (grad @ self.b).mul_(self.scale)
        if dx is not None:
            dx.addmm_(inner, self.a)
        da = inner.T @ x if self.a.requires_grad else None
        db = (grad.T @ (x @ self.a.T)).mul_(self.scale) if self.b.requires_grad else None
        return da, db


class Norm(NamedTuple):
    """RMS norm over the last dimension."""

    weight: Tensor
    epsilon: float

    def __call__(self, x: Tensor, into: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Of [T, d], and the [T, 1] factors that it multiplies x by; written `into` where that is given.

        Rounded as transformers rounds it: some tokens magnify another rounding a hundred times.
        """
        factor = torch.mul(x, x, out=into).mean(-1, keepdim=True).add_(self.epsilon).rsqrt_()
        return torch.mul(x, factor, out=into).mul_(self.weight), factor

    def back_(self, x: Tensor, grad: Tensor, factor: Tensor, spare: Tensor) -> Tensor:
        """Turn the gradient of the norm's output into that of x. `spare`: [T, d] to write to."""
        grad.mul_(self.weight)
        shared = torch.mul(grad, x, out=spare).mean(-1, keepdim=True).mul_(factor.square())
        return grad.addcmul_(x, shared, value=-1).mul_(factor)


class Turn(NamedTuple):
    """Cosines and sines of the rotary embedding, [T, 1, d / 2]: Llama's are alike in both halves."""

    cos: Tensor
    sin: Tensor

    @staticmethod
    def of(cos: Tensor, sin: Tensor) -> "Turn":
        """From those of all of a head, [T, d]."""
        return Turn(*(part[:, None, : part.shape[1] // 2].contiguous() for part in (cos, sin)))

    @property
    def back(self) -> "Turn":
        return Turn(self.cos, -self.sin)

    def by_(self, heads: Tensor) -> Tensor:
        """Turn [T, heads, d] in place; to the bit what transformers' own gives."""
        half = self.cos.shape[-1]
        low, high = heads[..., :half], heads[..., half:]
        crossed, other = high * self.sin, low * self.sin
        high.mul_(self.cos).add_(other)
        low.mul_(self.cos).sub_(crossed)
        return heads


class _Read(torch.autograd.Function):
    """Norm, then query, key and value of it, [T, heads · d], the first two turned. Keeps x."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        norm: Norm,
        layers: Sequence[Projection],
        turn: Turn,
        scratch: Scratch,
        *_: Tensor | None,
    ) -> tuple[Tensor, ...]:
        ctx.save_for_backward(x)
        ctx.norm, ctx.layers, ctx.turn, ctx.scratch = norm, layers, turn, scratch
        inner, _factor = norm(x, scratch("inner", *x.shape))
        read = tuple(layer(inner) for layer in layers)
        for flat, turned in zip(read, _TURNED, strict=True):
            if turned:
                turn.by_(_heads(flat, turn))
        return read

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        (x,) = ctx.saved_tensors
        scratch: Scratch = ctx.scratch
        inner, factor = ctx.norm(x, scratch("inner", *x.shape))
        dx = torch.empty_like(x) if ctx.needs_input_grad[0] else None
        of_lora: list[Tensor | None] = []
        back = ctx.turn.back
        for layer, grad, turned in zip(ctx.layers, grads, _TURNED, strict=True):
            own = scratch("turned", *grad.shape).copy_(grad)
            if turned:
                back.by_(_heads(own, back))
            of_lora += layer.back(inner, own, dx, more=bool(of_lora))
        if dx is not None:
            ctx.norm.back_(x, dx, factor, scratch("spare", *x.shape))
        return dx, None, None, None, None, *of_lora


class _Add(torch.autograd.Function):
    """residual + projection of x. Keeps x."""

    @staticmethod
    def forward(ctx: Any, residual: Tensor, x: Tensor, layer: Projection, *_: Tensor | None) -> Tensor:
        ctx.save_for_backward(x)
        ctx.layer = layer
        return layer(x).add_(residual)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        (x,) = ctx.saved_tensors
        dx = torch.empty_like(x) if ctx.needs_input_grad[1] else None
        return grads[0], dx, None, *ctx.layer.back(x, grads[0], dx)


class _MLP(torch.autograd.Function):
    """x + down(silu(gate(norm x)) · up(norm x)). Keeps x, gate and up."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        norm: Norm,
        layers: Sequence[Projection],
        scratch: Scratch,
        *_: Tensor | None,
    ) -> Tensor:
        inner, _factor = norm(x, scratch("inner", *x.shape))
        gate, up = layers[0](inner), layers[1](inner)
        ctx.save_for_backward(x, gate, up)
        ctx.norm, ctx.layers, ctx.scratch = norm, layers, scratch
        return layers[2](_silu(gate, scratch("opened", *gate.shape)).mul_(up)).add_(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        x, gate, up = ctx.saved_tensors
        scratch: Scratch = ctx.scratch
        of_gate, of_up, of_down = ctx.layers
        opened = _silu(gate, scratch("opened", *gate.shape))
        both = torch.mul(opened, up, out=scratch("both", *gate.shape))
        product = scratch("product", *gate.shape)
        down = of_down.back(both, grads[0], product)
        d_up = opened.mul_(product)
        d_gate = _silu_back(product.mul_(up), gate)
        inner, factor = ctx.norm(x, scratch("inner", *x.shape))
        dx = torch.empty_like(x) if ctx.needs_input_grad[0] else None
        of_lora = (*of_gate.back(inner, d_gate, dx), *of_up.back(inner, d_up, dx, more=True), *down)
        if dx is not None:
            ctx.norm.back_(x, dx, factor, scratch("spare", *x.shape)).add_(grads[0])
        return dx, None, None, None, *of_lora


class Blocks:
    """The body of a Llama-shaped model under PEFT. float32 weights only; for one thread at a time."""

    def __init__(self, body: Any) -> None:
        self._body, self.scratch = body, Scratch()
        self._epsilon: float = body.config.rms_norm_eps
        attention = body.layers[0].self_attn
        self.scaling: float = attention.scaling
        self.repeats: int = attention.num_key_value_groups

    def hidden(self, ids: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """[T, d] states after the final norm, of tokens [T] at positions [T]; `attend`: who sees whom."""
        states = F.embedding(ids, self._body.embed_tokens.weight)
        turn = Turn.of(*(part[0] for part in self._body.rotary_emb(states[None], positions[None])))
        for index, layer in enumerate(self._body.layers):
            states = self._block(index, layer, states, turn, attend)
        return cast(Tensor, self._body.norm(states))

    def _block(self, index: int, layer: Any, states: Tensor, turn: Turn, attend: Attend) -> Tensor:
        attention, mlp = layer.self_attn, layer.mlp
        read = [Projection.of(each) for each in (attention.q_proj, attention.k_proj, attention.v_proj)]
        norm = Norm(layer.input_layernorm.weight, self._epsilon)
        flat = _Read.apply(states, norm, read, turn, self.scratch, *_lora(read))  # type: ignore[no-untyped-call]
        seen = attend(index, *(_heads(each, turn) for each in flat)).flatten(1)
        out = Projection.of(attention.o_proj)
        states = _Add.apply(states, seen, out, out.a, out.b)  # type: ignore[no-untyped-call]
        layers = [Projection.of(each) for each in (mlp.gate_proj, mlp.up_proj, mlp.down_proj)]
        norm = Norm(layer.post_attention_layernorm.weight, self._epsilon)
        return cast(Tensor, _MLP.apply(states, norm, layers, self.scratch, *_lora(layers)))  # type: ignore[no-untyped-call]


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


def _lora(layers: Sequence[Projection]) -> list[Tensor | None]:
    """A and B of each, for autograd to see."""
    return [each for layer in layers for each in (layer.a, layer.b)]


def _heads(flat: Tensor, turn: Turn) -> Tensor:
    """[T, heads, d] of [T, heads · d]."""
    return flat.view(len(flat), -1, 2 * turn.cos.shape[-1])


def _silu(x: Tensor, into: Tensor) -> Tensor:
    return cast(Tensor, torch.ops.aten.silu.out(x, out=into))


def _silu_back(grad: Tensor, x: Tensor) -> Tensor:
    """In place of `grad`."""
    return cast(Tensor, torch.ops.aten.silu_backward.grad_input(grad, x, grad_input=grad))

"""Llama's forward pass over slots, with as few operations as it takes.

Decoding a small model on a CPU is bound by the number of operations, not by their size: of a step of
one row, five sixths is overhead. So projections that read the same input are one matrix, residuals
are added inside the product, and no module is called. It reads the model's own weights; the query, key
and value weights become views of one tensor, so nothing is held twice.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strop.engines.local.attention import Placement, Scores, attend

KINDS = ("llama", "qwen2", "qwen3", "mistral")
TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.6}
"""Nats. In bfloat16 both passes are up to 0.25 from float32; another architecture is off by several."""
COMPARED = 5


@dataclass(frozen=True, slots=True)
class _Block:
    """Weights of one block: `qkv` and `gate_up` are stacked by output.

    `head_norm` [heads + kv_heads, width]: Qwen 3 normalises queries and keys head by head.
    """

    norm: Tensor
    qkv: Tensor
    qkv_bias: Tensor | None
    head_norm: Tensor | None
    out: Tensor
    mlp_norm: Tensor
    gate_up: Tensor
    down: Tensor
    window: int | None


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of token ids [R, T], and where they live. `real` are the places that are no padding, None: all."""

    ids: Tensor
    placement: Placement
    real: Tensor | None = None


class LeanLlama:
    """The body and head of a Llama-shaped transformers model; see `lean_for`."""

    def __init__(self, model: Any) -> None:
        body, config = model.base_model, model.config
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.width = body.layers[0].self_attn.head_dim
        self.epsilon = config.rms_norm_eps
        self.scores = Scores(body.layers[0].self_attn.scaling)
        self._embed, self._norm = body.embed_tokens.weight, body.norm.weight
        self._head = model.get_output_embeddings().weight
        self._rotary = body.rotary_emb
        # Mistral keeps the window in its config only, Qwen2 in the layers that have one.
        window = config.sliding_window if config.model_type == "mistral" else None
        self._blocks = [_block(layer, window) for layer in body.layers]

    def hidden(self, batch: Batch) -> Tensor:
        """[N, d] states before the final norm, for the tokens that are no padding, row after row.

        Padding takes part in attention only, where rows have to be of one length.
        """
        ids = batch.ids.flatten() if batch.real is None else batch.ids.flatten()[batch.real]
        states = F.embedding(ids, self._embed)
        turn = tuple(part[:, :, None] for part in self._rotary(states, batch.placement.positions))
        for index, block in enumerate(self._blocks):
            states = self._block_forward(index, block, states, turn, batch)
        return states

    def head(self, states: Tensor) -> Tensor:
        """[N, V] logits, in the weights' number format, of states [N, d]."""
        return F.linear(self._normed(states, self._norm), self._head)

    def _block_forward(
        self,
        index: int,
        block: _Block,
        flat: Tensor,
        turn: Sequence[Tensor],
        batch: Batch,
    ) -> Tensor:
        mixed = F.linear(self._normed(flat, block.norm), block.qkv, block.qkv_bias)
        flat = torch.addmm(flat, self._attended(index, block, mixed, turn, batch), block.out)
        gate, up = F.linear(self._normed(flat, block.mlp_norm), block.gate_up).chunk(2, dim=-1)
        return torch.addmm(flat, F.silu(gate).mul_(up), block.down)

    def _attended(
        self, index: int, block: _Block, mixed: Tensor, turn: Sequence[Tensor], batch: Batch
    ) -> Tensor:
        (rows, length), (cos, sin), real = batch.ids.shape, turn, batch.real
        if real is not None:
            mixed = mixed.new_zeros((rows * length, mixed.shape[1])).index_copy_(0, real, mixed)
        heads = mixed.view(rows, length, self.heads + 2 * self.kv_heads, self.width)
        turned, value = torch.split(heads, [self.heads + self.kv_heads, self.kv_heads], dim=2)
        if block.head_norm is not None:
            turned = self._normed(turned, block.head_norm)
        low, high = turned.chunk(2, dim=-1)
        turned = torch.addcmul(turned * cos, torch.cat((-high, low), dim=-1), sin).transpose(1, 2)
        query, key = torch.split(turned, [self.heads, self.kv_heads], dim=1)
        value = value.transpose(1, 2)
        seen = attend(index, query, key, value, batch.placement, scores=self.scores, window=block.window)
        seen = seen.reshape(rows * length, -1)
        return seen if real is None else seen[real]

    def _normed(self, states: Tensor, weight: Tensor) -> Tensor:
        # In float32, as the model does it: some tokens have states of thousands.
        return (
            F.rms_norm(states.float(), (states.shape[-1],), None, self.epsilon).to(states.dtype).mul_(weight)
        )


def lean_for(model: Any) -> LeanLlama | None:
    """The lean form of a model whose blocks are plain Llama blocks; None for any other.

    The caller must have checked the result against the model's own forward pass: see `agrees`.
    """
    config = model.config
    plain = config.model_type in KINDS and getattr(config, "hidden_act", "") == "silu"
    if (
        not plain
        or getattr(config, "mlp_bias", False)
        or model.base_model.layers[0].self_attn.o_proj.bias is not None
    ):
        return None
    return LeanLlama(model)


def agrees(one: Tensor, other: Tensor) -> bool:
    """Whether two [R, V] logits are the same but for rounding, as log-probs of the likeliest tokens."""
    mine, theirs = torch.log_softmax(one.float(), -1), torch.log_softmax(other.float(), -1)
    likely = theirs.topk(min(COMPARED, theirs.shape[1])).indices
    apart = (mine - theirs).abs().gather(1, likely)
    return bool((apart <= TOLERANCE.get(one.dtype, TOLERANCE[torch.bfloat16])).all())


def _block(layer: Any, window: int | None) -> _Block:
    attention, mlp = layer.self_attn, layer.mlp
    biases = [p.bias for p in (attention.q_proj, attention.k_proj, attention.v_proj)]
    return _Block(
        norm=layer.input_layernorm.weight,
        qkv=_stacked(attention.q_proj, attention.k_proj, attention.v_proj),
        head_norm=_head_norm(attention),
        qkv_bias=None if biases[0] is None else torch.cat(biases),
        out=attention.o_proj.weight.t(),
        mlp_norm=layer.post_attention_layernorm.weight,
        gate_up=_stacked(mlp.gate_proj, mlp.up_proj),
        down=mlp.down_proj.weight.t(),
        window=getattr(attention, "sliding_window", window),
    )


def _head_norm(attention: Any) -> Tensor | None:
    if not hasattr(attention, "q_norm"):
        return None
    heads = [(attention.q_norm, attention.q_proj), (attention.k_norm, attention.k_proj)]
    return torch.cat([norm.weight.expand(p.out_features // attention.head_dim, -1) for norm, p in heads])


@torch.no_grad()
def _stacked(*projections: nn.Linear) -> Tensor:
    """The projections' weights as one [sum of outputs, inputs] tensor; theirs become views of it."""
    weights = [projection.weight for projection in projections]
    if all(_adjoin(one, other) for one, other in pairwise(weights)):
        rows, width = sum(len(weight) for weight in weights), weights[0].shape[1]
        return weights[0].as_strided((rows, width), (width, 1))
    whole = torch.cat(weights)
    for projection, part in zip(projections, torch.split(whole, [len(w) for w in weights]), strict=True):
        projection.weight = nn.Parameter(part, requires_grad=False)
    return whole


def _adjoin(one: Tensor, other: Tensor) -> bool:
    """Whether the rows of one matrix lie right behind those of another."""
    return (
        one.is_contiguous()
        and other.is_contiguous()
        and one.shape[1] == other.shape[1]
        and one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()
        and one.storage_offset() + one.numel() == other.storage_offset()
    )

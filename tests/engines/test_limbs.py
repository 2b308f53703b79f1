"""Trunk and tails with Llama's lean blocks, against the same learner reading whole trees module by module."""

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import (
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from local_model import SIZES, make_row
from strop.engines.local.learner import Learner, LearnerSettings
from strop.engines.local.limbs import limbs_for
from strop.engines.local.losses.tokens import LossSettings
from strop.engines.local.weights import LoraShape, adapted, adapter_tensors

pytestmark = pytest.mark.usefixtures("one_thread")

MODELS = {
    "llama": (LlamaForCausalLM, LlamaConfig),
    "qwen2": (Qwen2ForCausalLM, Qwen2Config),
}
STEM = [5, 9, 2, 7, 7, 1]
ROWS = [
    make_row([*STEM, 3, 4, 8, 6, 11], [0] * 6 + [1, 1, 0, 1, 1], name="a"),
    make_row([*STEM, 3, 4, 9], [0] * 6 + [1, 1, 1], name="b"),
    make_row([*STEM, 3, 4, 9], [0] * 6 + [1, 1, 1], name="again"),
    make_row([*STEM, 2], [0] * 5 + [1, 1], temperature=0.7, name="warm"),
    make_row([20, 21, 22, 23], [0, 1, 1, 1], name="c"),
]
ADVANTAGES = [1.0, -0.5, 0.3, 0.9, 0.8]


def learner(kind: str, shape: LoraShape, dtype: torch.dtype = torch.float32, **settings: Any) -> Learner:
    model_class, config = MODELS[kind]
    torch.manual_seed(1)
    base = model_class(config(**SIZES)).eval().requires_grad_(False).to(dtype)
    for name, parameter in base.named_parameters():
        if name.endswith("bias") or "norm" in name:
            parameter.data += 0.3 * torch.randn_like(parameter)
    model = adapted(base, shape, None, 0)
    for name, tensor in adapter_tensors(model, "policy").items():
        if "lora_B" in name:
            tensor.data.normal_(0, 0.2)
    return Learner(model, LearnerSettings(**settings))


def gradients(own: Learner) -> tuple[list[torch.Tensor], dict[str, float]]:
    own.on_policy = False
    found = dict(own.accumulate(ROWS, ADVANTAGES))
    return [p.grad.clone() for p in own.parameters if p.grad is not None], found


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("bound", [1, 12, 14, 100])
@pytest.mark.parametrize(
    "shape",
    [LoraShape(rank=4), LoraShape(rank=2, first_layer=1), LoraShape(rank=3, targets=["q_proj", "down_proj"])],
)
@pytest.mark.parametrize("surrogate", ["clipped", "sequence_clipped"])
def test_gradients_are_those_of_whole_trees(kind: str, bound: int, shape: LoraShape, surrogate: Any) -> None:
    loss = LossSettings(surrogate=surrogate, kl_coef=0.1)
    limbs = learner(kind, shape, micro_batch_tokens=bound, loss=loss)
    assert limbs._limbs is not None
    trees = learner(kind, shape, micro_batch_tokens=bound, loss=loss)
    trees._limbs = None
    (found, said), (expected, meant) = gradients(limbs), gradients(trees)
    assert len(found) == len(expected) > 0
    for one, other in zip(found, expected, strict=True):
        assert (one - other).norm() <= 1e-5 * other.norm()
    assert said == pytest.approx(meant, abs=1e-5)


def test_nothing_else_gets_a_gradient() -> None:
    own = learner("llama", LoraShape(rank=4, first_layer=1))
    gradients(own)
    assert all(p.grad is None for p in own.model.parameters() if not any(p is q for q in own.parameters))


class Fresh(TorchDispatchMode):
    """Counts the numbers of all results that are in memory of their own."""

    numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        given = {tensor.untyped_storage().data_ptr() for tensor in _tensors([args, kwargs])}
        for tensor in _tensors(out):
            if tensor.untyped_storage().data_ptr() not in given:
                self.numbers += tensor.numel()
        return out


def _tensors(found: Any) -> list[torch.Tensor]:
    if isinstance(found, dict):
        found = list(found.values())
    if isinstance(found, list | tuple):
        return [tensor for each in found for tensor in _tensors(each)]
    return [found] if isinstance(found, torch.Tensor) else []


def fresh_numbers(layers: int, tokens: int) -> int:
    torch.manual_seed(1)
    config = LlamaConfig(**{**SIZES, "num_hidden_layers": layers})
    base = LlamaForCausalLM(config).eval().requires_grad_(False)
    own = Learner(adapted(base, LoraShape(rank=4), None, 0), LearnerSettings())
    row = make_row(list(range(tokens)), [0, *[1] * (tokens - 1)])
    own.accumulate([row], [1.0])
    with Fresh() as fresh:
        own.accumulate([row], [1.0])
    return fresh.numbers


def test_a_layer_asks_for_little_memory_beyond_what_it_keeps() -> None:
    """Width 64, four heads, 32 of keys, 96 within the MLP, rank 4; by hand, of a layer and token.

    Query, key and value 128, attention's result twice 128, its sums 4, states twice 128, gate and up 192.
    Backwards: of three inputs 192, of queries, keys and values twice 256, a sum of states 64. Queries
    and keys, turned and back: 192, and minus the sines 8. LoRA's inner ones 21 · 4; norms 8. Of a layer,
    gradients of A: 4 by 6 · 64 + 96, and of B: 4 by 3 · 64 + 2 · 32 + 2 · 96.
    """
    tokens = 60
    a_token = 128 + 128 + 4 + 128 + 192 + 192 + 256 + 64 + 192 + 8 + 21 * 4 + 8
    a_layer = 4 * ((6 * 64 + 96) + (3 * 64 + 2 * 32 + 2 * 96))
    most = tokens * a_token + a_layer
    assert 0.9 * most <= fresh_numbers(3, tokens) - fresh_numbers(2, tokens) <= most


def test_bfloat16_and_checkpointing_read_trees() -> None:
    assert learner("llama", LoraShape(rank=4), torch.bfloat16)._limbs is None
    assert learner("llama", LoraShape(rank=4), checkpointing=True)._limbs is None


def test_blocks_that_say_something_else_are_not_used() -> None:
    own = learner("llama", LoraShape(rank=4))
    assert limbs_for(own.model, own._head, own._reader) is not None
    own.model.get_base_model().config.rms_norm_eps = 0.5
    assert limbs_for(own.model, own._head, own._reader) is None


def test_another_architecture_has_no_blocks() -> None:
    torch.manual_seed(0)
    config = GPTNeoXConfig(
        vocab_size=32, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8
    )
    base = GPTNeoXForCausalLM(config).eval().requires_grad_(False)
    own = Learner(adapted(base, LoraShape(rank=2), None, 0), LearnerSettings())
    assert own._limbs is None

"""Trunk and tails with Llama's lean blocks, against the same learner reading whole trees module by module."""

from typing import Any

import pytest
import torch
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

"""Several models over one tree: beside each model's own pass, and which blocks are computed once."""

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
from strop.engines.local import lockstep as module
from strop.engines.local.lockstep import Lockstep, lockstep_for
from strop.engines.local.reading import Reader
from strop.engines.local.tree import Pack, pack
from strop.engines.local.weights import LoraShape, adapted, adapter_tensors, share

pytestmark = pytest.mark.usefixtures("one_thread")

DEPTH = 4
STEM = [5, 9, 2, 7, 7, 1]
ROWS = [
    make_row([*STEM, 3, 4, 8, 6, 11, 12, 13], [0] * 6 + [1] * 7, name="a"),
    make_row([*STEM, 3, 4, 9], [0] * 6 + [1] * 3, name="b"),
    make_row([*STEM, 3, 4, 8, 6, 20], [0] * 10 + [1], name="c"),
    make_row([20, 21, 22, 23], [0, 1, 1, 1], name="d"),
]


def base(kind: str = "llama") -> Any:
    made = {
        "llama": lambda: LlamaForCausalLM(LlamaConfig(**SIZES | {"num_hidden_layers": DEPTH})),
        "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**SIZES | {"num_hidden_layers": DEPTH})),
        "neox": lambda: GPTNeoXForCausalLM(
            GPTNeoXConfig(**{k: v for k, v in SIZES.items() if k != "num_key_value_heads"})
        ),
    }
    torch.manual_seed(3)
    model = made[kind]().eval().requires_grad_(False)
    for name, parameter in model.named_parameters():
        if name.endswith("bias") or "norm" in name:
            parameter.data += 0.3 * torch.randn_like(parameter)
    return model


def under_adapter(model: Any, seed: int, start: int = 0, below: int = 0) -> Any:
    """The model under an adapter drawn from `seed` from block `start` on, from seed `below` before it."""
    worn = adapted(model, LoraShape(rank=2), None, 0)
    for name, tensor in adapter_tensors(worn, "policy").items():
        block = next(int(part) for part in name.split(".") if part.isdecimal())
        draw = torch.Generator().manual_seed(1000 * (seed if block >= start else below) + block)
        tensor.data.normal_(0, 0.3, generator=draw)
    return worn.get_base_model()


def tree() -> Pack:
    (packed,) = pack(ROWS, 100)
    return packed


@torch.inference_mode()
def apart(models: list[Any], lockstep: Lockstep) -> float:
    """The largest difference from each model's own pass over each row alone."""
    got = lockstep.hidden(tree())
    found = 0.0
    for model, states in zip(models, got, strict=True):
        reader = Reader(share(model))
        reader._set("rows")
        for index, nodes in zip(tree().rows, tree().predictor, strict=True):
            (alone,) = pack([ROWS[index]], 100)
            expected = reader.hidden(alone)[torch.from_numpy(alone.predictor[0])]
            found = max(found, float((states[torch.from_numpy(nodes)] - expected).abs().max()))
    return found


@pytest.mark.parametrize("kind", ["llama", "qwen2"])
@pytest.mark.parametrize("piece", [3, 512])
def test_states_are_each_models_own(kind: str, piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PIECE", piece)
    model = base(kind)
    models = [under_adapter(model, 1), share(model), under_adapter(model, 2, start=2)]
    lockstep = lockstep_for(models, [Reader(share(one)) for one in models])
    # Readers of copies: the models keep their own attention for the comparison.
    assert lockstep is not None
    assert apart(models, lockstep) < 1e-4


def test_blocks_are_shared_up_to_the_first_that_differs() -> None:
    model = base()
    start, policy = under_adapter(model, 1), under_adapter(model, 2, start=3, below=1)
    middle = under_adapter(model, 3, start=2, below=1)
    stages = Lockstep([policy, start, middle, share(model)]).stages
    assert [(s.start, s.stop, s.leads) for s in stages] == [
        (0, 2, (0, 0, 0, 3)),
        (2, 3, (0, 0, 2, 3)),
        (3, 4, (0, 1, 2, 3)),
    ]
    assert apart([policy, start, middle], Lockstep([policy, start, middle])) < 1e-4


def test_models_that_are_the_same_get_one_tensor() -> None:
    model = base()
    lockstep = Lockstep([under_adapter(model, 1), under_adapter(model, 1), share(model), share(model)])
    policy, copy, bare, again = lockstep.hidden(tree())
    assert policy is copy
    assert bare is again
    assert not torch.equal(policy, bare)


def test_an_adapter_of_zeros_is_the_bare_model() -> None:
    model = base()
    zeros = adapted(model, LoraShape(rank=2), None, 0).get_base_model()
    one, other = Lockstep([zeros, share(model)]).hidden(tree())
    assert one is other


def test_two_whole_models_share_nothing() -> None:
    one, other = base(), base()
    assert [s.leads for s in Lockstep([one, other]).stages] == [(0, 1)]


def test_others_are_left_to_their_readers() -> None:
    for model in (base("neox"), base().to(torch.bfloat16)):
        assert lockstep_for([model], [Reader(share(model))]) is None

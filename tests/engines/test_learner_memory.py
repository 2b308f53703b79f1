"""What the learner holds at once: the largest tensor of a step, checkpointing, and bfloat16's error."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from families import family
from local_model import make_row, transformers_logits
from strop.engines.local.checkpointing import keep_inputs_only
from strop.engines.local.learner import Learner, LearnerSettings
from strop.engines.local.readout import CHUNK
from strop.engines.local.weights import LoraShape, adapted, adapter_tensors, save_adapter
from strop.errors import ModelError
from strop.trajectory.tokens import Row

pytestmark = pytest.mark.usefixtures("one_thread")

VOCABULARY = 4000
GENERATOR = np.random.default_rng(5)
STEM = GENERATOR.integers(0, 64, 20).tolist()
ROWS = [
    make_row([*STEM, *GENERATOR.integers(0, 64, 60).tolist()], [0] * 20 + [1] * 60, logprobs=[-4.0] * 60)
    for _ in range(6)
]
ADVANTAGES = [1.0, -0.5, 0.8, -1.2, 0.3, -0.4]


class Largest(TorchDispatchMode):
    """Notes the shapes of all tensors that operations give, and their bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.shapes: dict[tuple[int, ...], int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for one in out if isinstance(out, tuple | list) else [out]:
            if isinstance(one, torch.Tensor):
                self.shapes[tuple(one.shape)] = one.numel() * one.element_size()
        return out


def learner(
    name: str = "llama", dtype: torch.dtype = torch.float32, seed: int = 0, **settings: Any
) -> Learner:
    base = family(name, **({"vocab_size": VOCABULARY} if settings.pop("wide", False) else {}))
    model = adapted(base.to(dtype), LoraShape(rank=4), None, seed)
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in adapter_tensors(model, "policy").values():
            parameter.add_(0.05 * torch.randn(parameter.shape))
    return Learner(model, LearnerSettings(**settings))


def gradient(own: Learner) -> torch.Tensor:
    own.accumulate(ROWS, ADVANTAGES)
    return torch.cat([p.grad.flatten() for p in own.parameters if p.grad is not None])


def logprobs(own: Learner, rows: list[Row]) -> np.ndarray:
    return np.concatenate([scored.logprobs for scored in own.score(rows, "policy")])


@pytest.mark.parametrize("name", ["llama", "gemma2"])
def test_x53_no_array_of_all_tokens_by_vocabulary_is_ever_made(name: str) -> None:
    """360 trained tokens, 4000 words: chunks of logits, and the head, are the largest there is."""
    own = learner(name, wide=True, micro_batch_tokens=1000)
    with Largest() as seen:
        own.accumulate(ROWS, ADVANTAGES)
        own.step()
        own.score(ROWS, "policy")
    rows_of_logits = {shape[0] for shape in seen.shapes if len(shape) == 2 and shape[1] == VOCABULARY}
    assert CHUNK in rows_of_logits, "the mode sees the logits"
    assert max(seen.shapes.values()) <= 4 * VOCABULARY * CHUNK
    assert sum(int(row.mask.sum()) for row in ROWS) > 2 * CHUNK


@pytest.mark.parametrize("name", ["llama", "gemma3"])
def test_checkpointing_changes_no_bit_of_the_gradient(name: str) -> None:
    kept = learner(name)
    kept._limbs = None  # whole trees, module by module, as with checkpointing
    whole, again = gradient(kept), gradient(learner(name, checkpointing=True))
    assert whole.abs().max() > 0
    torch.testing.assert_close(again, whole, rtol=0, atol=0)


def test_checkpointing_keeps_the_layers_inputs_only() -> None:
    """Counted by what autograd saves of a forward pass: of two layers, far more than half is gone."""

    def saved(checkpointing: bool) -> int:
        own, kept = learner(checkpointing=checkpointing), dict[int, int]()

        def note(tensor: torch.Tensor) -> torch.Tensor:
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        weights = {parameter.untyped_storage().data_ptr() for parameter in own.model.parameters()}
        (packed,) = own._reader.packs(ROWS, 1000)
        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            hidden = own._reader.hidden(packed)
        assert hidden.requires_grad
        return sum(size for place, size in kept.items() if place not in weights)

    assert saved(True) < 0.2 * saved(False)


def test_a_model_without_such_layers_is_refused() -> None:
    with pytest.raises(ModelError, match="cannot be computed again"):
        keep_inputs_only(torch.nn.ModuleDict())


@pytest.mark.parametrize("checkpointing", [False, True])
def test_x28_dropout_that_an_adapter_was_made_with_is_off(checkpointing: bool, tmp_path: Path) -> None:
    """Half of every LoRA's input would be gone, and the ratio on policy would not be 1."""
    plain_one = learner(checkpointing=checkpointing)
    save_adapter(plain_one.model, tmp_path)
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    (tmp_path / "adapter_config.json").write_text(json.dumps({**config, "lora_dropout": 0.5}))
    model = adapted(family("llama"), LoraShape(rank=4), tmp_path, 0)
    own = Learner(model, LearnerSettings(checkpointing=checkpointing))
    assert any(isinstance(m, torch.nn.Dropout) and m.p == 0.5 for m in own.model.modules())
    torch.testing.assert_close(gradient(own), gradient(plain_one), rtol=0, atol=0)
    np.testing.assert_array_equal(logprobs(own, ROWS), logprobs(plain_one, ROWS))


@pytest.mark.parametrize("name", ["llama", "qwen3", "gemma2", "gemma3"])
def test_x55_the_error_of_bfloat16_is_bounded(name: str) -> None:
    """Mean and largest |log-prob difference| to the same weights in float32, packed and row by row.

    Packing adds nothing to what bfloat16 itself costs: the model alone is as far off.
    """
    half = learner(name, torch.bfloat16)
    full = learner(name)
    for mine, theirs in zip(full.model.parameters(), half.model.parameters(), strict=True):
        mine.data.copy_(theirs.data)
    exact = np.concatenate([plain(full, row) for row in ROWS])
    with torch.autocast("cpu", torch.bfloat16):
        unpacked = np.concatenate([plain(half, row) for row in ROWS])
    packed, bound = np.abs(logprobs(half, ROWS) - exact), np.abs(unpacked - exact)
    assert packed.mean() < 0.02
    assert packed.max() < 0.15
    assert packed.mean() < 1.5 * bound.mean()


@torch.no_grad()
def plain(own: Learner, row: Row) -> np.ndarray:
    logp = torch.log_softmax(transformers_logits(own.model, row.ids.tolist()).float(), -1)
    where = np.flatnonzero(row.mask)
    return logp[where - 1, row.ids[where]].double().numpy()

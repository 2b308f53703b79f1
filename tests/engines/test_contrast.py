"""Policy and references read together: beside transformers' own full log-softmax of every row alone."""

from pathlib import Path

import numpy as np
import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from local_model import make_row, write_model
from strop.engines.local.contrast import ContrastConfig, LocalContrast
from strop.engines.local.weights import LoraShape, adapted, load_base, save_adapter
from strop.errors import InputError, ModelError

ROWS = [
    ([1, 5, 9, 7, 8, 9, 4], [0, 0, 0, 1, 1, 0, 1]),
    ([1, 5, 9, 7, 8, 20, 21, 22], [0, 0, 0, 1, 1, 1, 0, 1]),
    ([1, 30, 31], [0, 1, 1]),
    ([1, 5, 9], [0, 0, 0]),
]


@pytest.fixture(scope="module")
def adapters(tmp_path_factory):
    """A model's folder and two adapters of different rank, both far from it."""
    folder = write_model(tmp_path_factory.mktemp("contrast") / "base", seed=5)
    found = [folder]
    for rank in (2, 4):
        model = adapted(load_base(folder, torch.float32, "cpu"), LoraShape(rank=rank), None, rank)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if "lora_B" in name:
                    parameter.normal_(std=0.3)
        save_adapter(model, folder.parent / str(rank))
        found.append(folder.parent / str(rank))
    return found


def contrast(adapters, **fields):
    given = {"policy": str(adapters[1]), "model": str(adapters[0]), "dtype": "float32", "device": "cpu"}
    return LocalContrast(ContrastConfig(**(given | fields)))


@torch.no_grad()
def tables(adapters, ids, temperature):
    """Log-softmax [T, V] of policy, bare model and second adapter."""
    out = []
    for adapter in (adapters[1], None, adapters[2]):
        model = AutoModelForCausalLM.from_pretrained(adapters[0])
        if adapter is not None:
            model = PeftModel.from_pretrained(model, str(adapter)).merge_and_unload()
        logits = model(input_ids=torch.tensor([ids])).logits[0] / temperature
        out.append(torch.log_softmax(logits.double(), dim=-1).numpy())
    return out


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated")
@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_log_probs_and_kl_beside_transformers(adapters, temperature):
    read = contrast(adapters, references=("base", str(adapters[2])))
    rows = [make_row(ids, mask, temperature=temperature) for ids, mask in ROWS]
    for row, got in zip(rows, read.read(rows), strict=True):
        at = np.flatnonzero(row.mask)
        policy, *others = tables(adapters, row.ids.tolist(), temperature)
        target = row.ids[at]
        np.testing.assert_allclose(got.policy.logprobs, policy[at - 1, target], atol=1e-4)
        p = np.exp(policy[at - 1])
        np.testing.assert_allclose(got.policy.entropy, -(p * policy[at - 1]).sum(1), atol=1e-4)
        certain = -policy[at - 1].mean(1) - np.log(policy.shape[1])
        np.testing.assert_allclose(got.policy.self_certainty, certain, atol=1e-4)
        top = np.sort(policy[at - 1], axis=1)[:, -20:].mean(1)
        np.testing.assert_allclose(got.policy.topk_logprob, top, atol=1e-4)
        for other, against in zip(others, got.references, strict=True):
            np.testing.assert_allclose(against.logprobs, other[at - 1, target], atol=1e-4)
            kl = (p * (policy[at - 1] - other[at - 1])).sum(1)
            np.testing.assert_allclose(against.kl, kl, atol=1e-4)
            assert at.size == 0 or against.kl.max() > 1e-3


def test_the_policy_as_its_own_reference_is_bit_for_bit_the_same(adapters):
    copied = adapters[1].parent / "copy"
    copied.mkdir(exist_ok=True)
    for file in Path(adapters[1]).iterdir():
        (copied / file.name).write_bytes(file.read_bytes())
    read = contrast(adapters, references=(str(adapters[1]), str(copied)))
    for got in read.read([make_row(ids, mask) for ids, mask in ROWS]):
        for against in got.references:
            np.testing.assert_array_equal(against.logprobs, got.policy.logprobs)
            np.testing.assert_array_equal(against.kl, np.zeros(len(got.policy.logprobs)))


def test_adapters_share_the_bases_weights(adapters):
    read = contrast(adapters, references=("base", str(adapters[2])))
    weights = {side.head.weight.data_ptr() for side in read._sides}
    assert len(weights) == 1


def test_a_long_branch_is_read_in_stretches_to_the_same_numbers(adapters, monkeypatch):
    rows = [make_row([1, *range(3, 40)], [0, *[1] * 37]), make_row([1, *range(3, 20), 5], [0] * 18 + [1])]
    whole = contrast(adapters).read(rows)
    monkeypatch.setattr("strop.engines.local.contrast.STRETCH", 7)
    for one, cut in zip(whole, contrast(adapters).read(rows), strict=True):
        np.testing.assert_allclose(cut.policy.logprobs, one.policy.logprobs, atol=1e-5)
        np.testing.assert_allclose(cut.references[0].kl, one.references[0].kl, atol=1e-5)


def test_wrong_ids_and_missing_models_are_one_line(adapters):
    with pytest.raises(InputError, match="vocabulary has 64"):
        contrast(adapters).read([make_row([1, 99], [0, 1])])
    with pytest.raises(ModelError, match="no such model folder"):
        contrast(adapters, references=("/nowhere/at/all",))

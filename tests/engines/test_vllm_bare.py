"""The base as an adapter: the same modules, no effect."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from local_model import transformers_logits, write_model
from strop.engines.adapter_files import ADAPTER_WEIGHTS
from strop.engines.local.weights import LoraShape, adapted, load_base, save_adapter
from strop.engines.vllm.bare import write_bare
from strop.errors import ModelError

PROMPT = [3, 9, 2, 7]


def test_a_model_that_wears_it_is_the_base(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model")
    lora = LoraShape(rank=2)
    trained = adapted(load_base(model, torch.float32, "cpu"), lora, None, 0)
    with torch.no_grad():
        for name, parameter in trained.named_parameters():
            if "lora_B" in name:
                parameter.normal_(generator=torch.Generator().manual_seed(0))
    save_adapter(trained, tmp_path / "trained")
    write_bare(tmp_path / "trained", tmp_path / "bare")
    assert (
        load_file(tmp_path / "bare" / ADAPTER_WEIGHTS).keys()
        == load_file(tmp_path / "trained" / ADAPTER_WEIGHTS).keys()
    )
    worn = adapted(load_base(model, torch.float32, "cpu"), lora, tmp_path / "bare", 0)
    with torch.no_grad():
        says, said = transformers_logits(worn, PROMPT), transformers_logits(trained, PROMPT)
        base = load_base(model, torch.float32, "cpu")(input_ids=torch.tensor([PROMPT])).logits[0]
    torch.testing.assert_close(says, base, rtol=0, atol=1e-5)
    assert (said - base).abs().max() > 0.1


def test_what_is_no_adapter_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"cannot read adapter_model\.safetensors"):
        write_bare(tmp_path, tmp_path / "bare")

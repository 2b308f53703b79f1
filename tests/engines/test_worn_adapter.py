"""What a served judge is held against: the same adapter, read here."""

from pathlib import Path

import pytest
import torch

from local_model import transformers_logits, write_model
from strop.engines.local.engine import PROBE_BOUND, _next_token
from strop.engines.local.weights import LoraShape, adapted, adapter_tensors, load_base

PROMPT = [3, 9, 2, 7]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_next_token_is_the_models_in_either_precision(tmp_path: Path, dtype: torch.dtype) -> None:
    model = adapted(load_base(write_model(tmp_path), dtype, "cpu"), LoraShape(rank=2), None, 0)
    with torch.no_grad():
        for tensor in adapter_tensors(model, "policy").values():
            tensor.normal_(std=0.1, generator=torch.Generator().manual_seed(0))
    said = _next_token(model, PROMPT)
    with torch.no_grad():
        expected = torch.log_softmax(transformers_logits(model.float(), PROMPT)[-1].float(), dim=-1)
    assert list(said) == list(range(64))
    assert torch.tensor(list(said.values())) == pytest.approx(expected, abs=PROBE_BOUND[dtype])

"""Grading's numbers: vLLM's log-probs of prompts beside the local engine's, of the same rows and adapters."""

import importlib.util
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from demo_desk import SHIPPED, desk

from local_model import make_row
from strop.engine import Contrasted
from strop.engines.local.contrast import ContrastConfig, LocalContrast
from strop.engines.local.weights import LoraShape, adapted, load_base, save_adapter
from strop.engines.vllm.contrast import VllmContrast
from strop.engines.vllm.reading_proof import ReadingProof
from strop.engines.vllm.settings import VllmSettings
from strop.trajectory.tokens import Row
from vllm_server import LENGTH, PYTHON, START_S, Supervised, tiny_config

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(7200)]
BOUND = 1e-3
"""The probe's, in float32."""
CHUNK = "256"
IN_PIECES = ("--enable-chunked-prefill", "--max-num-batched-tokens", CHUNK)
"""Tokens that vLLM takes at once: long rows come in pieces."""


@pytest.fixture
def adapter(tmp_path: Path, server: Supervised) -> Callable[[int], Path]:
    """Makes an adapter of the tiny model, another one for each seed."""

    def make(seed: int) -> Path:
        lora = LoraShape(rank=2, targets=tiny_config(server.model).lora.targets)
        model = adapted(load_base(server.model, torch.float32, "cpu"), lora, None, seed)
        noise = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if "lora_B" in name:
                    parameter.copy_(torch.randn(parameter.shape, generator=noise) * 0.3)
        save_adapter(model, tmp_path / str(seed))
        return tmp_path / str(seed)

    return make


@contextmanager
def opened(
    config: ContrastConfig, settings: VllmSettings
) -> Iterator[tuple[VllmContrast, list[ReadingProof]]]:
    proofs: list[ReadingProof] = []
    contrast = VllmContrast(config, settings, proofs.append)
    try:
        yield contrast, proofs
    finally:
        contrast.close()


def tiny(model: Path, policy: Path, *references: Path | str) -> ContrastConfig:
    return ContrastConfig(
        policy=str(policy),
        references=tuple(map(str, references)),
        model=str(model),
        dtype="float32",
        device="cpu",
    )


def letters(count: int, longest: int) -> list[Row]:
    """Random letters of all lengths up to that, two of three of them scored."""
    rng = np.random.default_rng(0)
    sizes = np.linspace(3, longest, count).astype(int)
    return [
        make_row(rng.integers(3, 60, size).tolist(), np.arange(size) % 3 > 0, name=f"of {size}")
        for size in sizes
    ]


def gap(theirs: Sequence[Contrasted], ours: Sequence[Contrasted]) -> float:
    """The largest difference of a log-prob, under any model."""
    return max(
        float(np.abs(a - b).max())
        for one, other in zip(theirs, ours, strict=True)
        for a, b in zip(sides(one), sides(other), strict=True)
    )


def sides(read: Contrasted) -> list[np.ndarray]:
    return [read.policy.logprobs, *(reference.logprobs for reference in read.references)]


def test_many_rows_at_once_long_ones_in_pieces_and_a_full_prefix_cache(
    server: Supervised, adapter: Callable[[int], Path]
) -> None:
    some = letters(20, LENGTH - 1)
    config = tiny(server.model, adapter(1), adapter(2), "base", adapter(1))
    settings = VllmSettings(python=Path(os.environ[PYTHON]), args=IN_PIECES, start_timeout_s=START_S)
    ours = LocalContrast(config).read(some)
    with opened(config, settings) as (contrast, proofs):
        theirs, again = contrast.read(some), contrast.read(some)
    found = gap(theirs, ours)
    tokens = sum(int(row.mask.sum()) for row in some)
    print(f"\n{len(some)} rows, {tokens} tokens, 3 models, {CHUNK} at a time: largest gap {found:.2g} nats")
    assert found <= BOUND
    assert gap(again, theirs) <= BOUND
    assert min(np.abs(a - b).max() for one in theirs for a, b in [sides(one)[:2], sides(one)[1:3]]) > BOUND
    for read in theirs:
        np.testing.assert_array_equal(read.policy.logprobs, read.references[2].logprobs)
    assert proofs[0].gap is not None
    assert proofs[0].gap <= BOUND


def test_at_a_running_server_others_are_left_alone(
    server: Supervised, adapter: Callable[[int], Path]
) -> None:
    some = letters(4, 200)
    config = tiny(server.model, adapter(1), "base")
    held = server.held()
    with opened(config, VllmSettings(url=server.url)) as (contrast, _):
        found = gap(contrast.read(some), LocalContrast(config).read(some))
    print(f"\nattached: largest gap {found:.2g} nats")
    assert found <= BOUND
    assert server.held() == held


@pytest.mark.skipif(importlib.util.find_spec("gguf") is None, reason="needs the embedded model")
def test_the_demos_adapters_on_the_embedded_model(server: Supervised) -> None:
    """Six conversations at the order desk, the warm start against the judge and the bare model."""
    config = ContrastConfig(
        policy=str(SHIPPED / "warmstart"),
        references=(str(SHIPPED / "judge"), "base"),
        dtype="float32",
        device="cpu",
        max_length=1024,
    )
    local = LocalContrast(config)
    some = [row for number in range(6) for row in desk(number, local.tokenizer)]
    ours = local.read(some)
    with opened(config, VllmSettings(python=Path(os.environ[PYTHON]), start_timeout_s=START_S)) as (
        contrast,
        _,
    ):
        found = gap(contrast.read(some), ours)
    tokens = sum(int(row.mask.sum()) for row in some)
    print(f"\nSmolLM2: {len(some)} rows, {tokens} tokens, 3 models: largest gap {found:.2g} nats")
    assert found <= BOUND

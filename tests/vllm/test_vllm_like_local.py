"""vLLM beside the local engine: the same adapter, the same prompts, temperature 0."""

import asyncio
import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from demo_desk import SHIPPED, turns

from strop.engines.local.engine import LocalConfig, LocalEngine
from strop.engines.vllm.serving import serving
from strop.engines.vllm.settings import VllmSettings
from strop.inference.sampling import Sampled, SamplingParams
from vllm_server import PYTHON, START_S, Supervised, tiny_config

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(3600)]
PROMPTS, SHORTEST, TOKENS = 16, 2, 24


def prompts() -> list[list[int]]:
    """Random letters, each prompt longer than the one before."""
    rng = np.random.default_rng(0)
    return [rng.integers(3, 60, SHORTEST + 9 * number).tolist() for number in range(PROMPTS)]


def greedy(engine: LocalEngine, told: Sequence[Sequence[int]]) -> list[Sampled]:
    params = SamplingParams(max_tokens=TOKENS, temperature=0.0)

    async def all_of_them() -> Sequence[Sampled]:
        asked = [engine.sampler.sample(prompt, params, model="policy") for prompt in told]
        return await asyncio.gather(*asked)

    return list(asyncio.run(all_of_them()))


def test_same_tokens_and_log_probs_within_the_bound(server: Supervised, tmp_path: Path) -> None:
    server.engine.save(tmp_path)
    local = LocalEngine(tiny_config(server.model, max_length=256))
    try:
        local.load(tmp_path)
        bound = local.publish().probe_bound
        theirs, ours = greedy(server.engine, prompts()), greedy(local, prompts())
    finally:
        local.close()
    assert_alike(theirs, ours, bound)


@pytest.mark.skipif(importlib.util.find_spec("gguf") is None, reason="needs the embedded model")
def test_the_same_of_the_embedded_model_at_the_order_desk() -> None:
    """The warm start's replies to what twelve demonstrations had said so far."""
    config = LocalConfig(
        adapter=SHIPPED / "warmstart", dtype="float32", device="cpu", slots=8, max_length=1024
    )
    settings = VllmSettings(python=Path(os.environ[PYTHON]), start_timeout_s=START_S)
    local = LocalEngine(config)
    try:
        said = [list(turn.prompt_ids) for number in range(12) for turn in turns(number, local.tokenizer)]
        ours, bound = greedy(local, said), local.publish().probe_bound
    finally:
        local.close()
    theirs = LocalEngine(config, serving(settings))
    try:
        assert_alike(greedy(theirs, said), ours, bound)
    finally:
        theirs.close()


def assert_alike(theirs: Sequence[Sampled], ours: Sequence[Sampled], bound: float) -> None:
    """The same tokens, not all answers the same, and log-probs within the bound."""
    assert [one.ids for one in theirs] == [one.ids for one in ours]
    assert len({one.ids for one in ours}) > 1
    gaps = [np.abs(np.subtract(a.logprobs, b.logprobs)).max() for a, b in zip(theirs, ours, strict=True)]
    tokens = sum(len(one.ids) for one in ours)
    print(f"\ntemperature 0: {tokens} tokens the same, largest gap {max(gaps):.2g} nats, bound {bound:g}")
    assert max(gaps) <= bound

"""vLLM beside the local engine: the same adapter, the same prompts, temperature 0."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from strop.engines.local.engine import LocalEngine
from strop.inference.sampling import Sampled, SamplingParams
from vllm_server import Supervised, tiny_config

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(3600)]
PROMPTS, SHORTEST, TOKENS = 16, 2, 24


def prompts() -> list[list[int]]:
    """Random letters, each prompt longer than the one before."""
    rng = np.random.default_rng(0)
    return [rng.integers(3, 60, SHORTEST + 9 * number).tolist() for number in range(PROMPTS)]


def greedy(engine: LocalEngine) -> list[Sampled]:
    params = SamplingParams(max_tokens=TOKENS, temperature=0.0)

    async def all_of_them() -> Sequence[Sampled]:
        asked = [engine.sampler.sample(prompt, params, model="policy") for prompt in prompts()]
        return await asyncio.gather(*asked)

    return list(asyncio.run(all_of_them()))


def test_same_tokens_and_log_probs_within_the_bound(server: Supervised, tmp_path: Path) -> None:
    server.engine.save(tmp_path)
    local = LocalEngine(tiny_config(server.model, max_length=256))
    try:
        local.load(tmp_path)
        bound = local.publish().probe_bound
        theirs, ours = greedy(server.engine), greedy(local)
    finally:
        local.close()
    assert [one.ids for one in theirs] == [one.ids for one in ours]
    assert len({one.ids for one in ours}) > 1
    gaps = [np.abs(np.subtract(a.logprobs, b.logprobs)).max() for a, b in zip(theirs, ours, strict=True)]
    tokens = sum(len(one.ids) for one in ours)
    print(f"\ntemperature 0: {tokens} tokens the same, largest gap {max(gaps):.2g} nats, bound {bound:g}")
    assert max(gaps) <= bound

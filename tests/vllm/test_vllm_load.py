"""More long prompts at once than vLLM computes in one pass, each with a seed, as a step's attempts are."""

import asyncio

import numpy as np
import pytest

from strop.inference.sampling import Sampled, SamplingParams
from vllm_server import LENGTH, Supervised

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(3600)]
PROMPTS, LONG, TOKENS = 12, LENGTH * 3 // 4, 6


def test_a_crowd_of_long_prompts_with_seeds_is_answered(server: Supervised) -> None:
    lost = len(server.heard.of("server_lost"))
    rng = np.random.default_rng(0)
    prompts = [rng.integers(3, 60, LONG).tolist() for _ in range(PROMPTS)]

    async def all_of_them() -> list[Sampled]:
        sampler = server.engine.sampler
        asked = [
            sampler.sample(prompt, SamplingParams(max_tokens=TOKENS, seed=number), model="policy")
            for number, prompt in enumerate(prompts)
        ]
        return list(await asyncio.gather(*asked))

    found = asyncio.run(all_of_them())
    assert {one.model for one in found} == {server.ask().model}
    assert len({one.ids for one in found}) > 1
    assert len(server.heard.of("server_lost")) == lost

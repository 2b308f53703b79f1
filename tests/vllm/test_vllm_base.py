"""The bare base beside adapters in one batch: vLLM's own base is another model then, on a processor."""

import asyncio
from collections.abc import Sequence

import pytest

from strop.inference.sampling import Sampled, SamplingParams
from vllm_server import PROMPT, Supervised

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(3600)]
ENOUGH = 5
"""Versions: more than there are places for adapters in a batch, so that no place is empty."""
TOGETHER = ["base", "policy", "base", "judge", "base", "policy"]


def asked(server: Supervised, names: Sequence[str]) -> list[Sampled]:
    """Answers to requests that are all under way at once."""
    params = SamplingParams(max_tokens=24, temperature=0.0)

    async def all_of_them() -> list[Sampled]:
        sampler = server.engine.sampler
        return list(await asyncio.gather(*(sampler.sample(PROMPT, params, model=name) for name in names)))

    return asyncio.run(all_of_them())


def test_what_shares_a_batch_does_not_change_who_answers(server: Supervised) -> None:
    alone = {name: asked(server, [name])[0] for name in ("base", "judge")}
    for _ in range(ENOUGH):
        server.train()
        server.engine.publish()
    alone["policy"] = asked(server, ["policy"])[0]
    for name, found in zip(TOGETHER, asked(server, TOGETHER), strict=True):
        assert (found.model, found.ids) == (alone[name].model, alone[name].ids), name
        assert found.logprobs == pytest.approx(alone[name].logprobs, abs=1e-4), name

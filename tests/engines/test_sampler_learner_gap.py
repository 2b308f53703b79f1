"""What the sampler says of its tokens, the learner says too: over turns, drafts and trained adapters.

The bound is 1e-4 nats in float32 for every token. Sampler and learner share no pass: one reads tokens a
few at a time from slots, from weights with the adapter folded in; the other reads whole trees of rows with
the adapter apart.
"""

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from strop.engines.local.engine import LocalConfig, LocalEngine
from strop.engines.local.learner import LearnerSettings
from strop.engines.local.weights import LoraShape
from strop.inference.sampling import SamplingParams
from strop.trajectory.model import Turn
from strop.trajectory.tokens import Row, rows

pytestmark = pytest.mark.usefixtures("one_thread")

BOUND = 1e-4
SYSTEM = [3 + index % 40 for index in range(70)]
ATTEMPTS, TURNS = 6, 4


@pytest.fixture
def engine(tiny_model: Path) -> Iterator[LocalEngine]:
    opened = LocalEngine(
        LocalConfig(
            model=str(tiny_model),
            lora=LoraShape(rank=4),
            learner=LearnerSettings(learning_rate=2e-2),
            dtype="float32",
            device="cpu",
            slots=4,
            max_length=256,
        )
    )
    yield opened
    opened.close()


def sampled(engine: LocalEngine, part: str, temperature: float = 1.0) -> list[Row]:
    """Attempts of one group, more than there are slots; each turn goes on where the last one ended."""
    names = [f"{part}/{number}" for number in range(ATTEMPTS)]

    async def attempt(number: int) -> list[Turn]:
        ids, turns = (*SYSTEM, 10 + number), list[Turn]()
        for turn in range(TURNS):
            params = SamplingParams(max_tokens=9 + number, temperature=temperature, seed=10 * number + turn)
            reply = await engine.sampler.sample(ids, params, model="policy", session=names[number])
            turns.append(
                Turn(
                    prompt_ids=ids,
                    sampled_ids=reply.ids,
                    logprobs=reply.logprobs,
                    finish_reason=reply.finish_reason,
                    message_index=turn,
                    policy_version=reply.version,
                    temperature=temperature,
                )
            )
            ids = (*ids, *reply.ids, 20 + turn, 30 + number, 5)
        engine.sampler.shut(names[number])
        return turns

    async def everything() -> Sequence[list[Turn]]:
        engine.sampler.open(names)
        return await asyncio.gather(*map(attempt, range(ATTEMPTS)))

    found = asyncio.run(everything())
    return [row for name, turns in zip(names, found, strict=True) for row in rows(name, turns)]


def apart(engine: LocalEngine, taken: Sequence[Row]) -> NDArray[np.float64]:
    """|log π - log μ| of every sampled token."""
    learner = engine.logprobs(taken, "policy")
    return np.concatenate([np.abs(v - r.logprobs[r.mask]) for v, r in zip(learner, taken, strict=True)])


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_sampler_and_learner_agree_on_every_token_of_a_rollout(
    engine: LocalEngine, temperature: float
) -> None:
    distances = apart(engine, sampled(engine, "first", temperature))
    assert distances.size > ATTEMPTS * TURNS
    assert distances.max() <= BOUND


def test_they_agree_after_every_step_and_publish_and_no_sooner(engine: LocalEngine) -> None:
    """A policy that has moved is far from what sampled, so the bound above is no accident of the model."""
    for step in range(3):
        taken = sampled(engine, f"step-{step}")
        assert apart(engine, taken).max() <= BOUND
        engine.accumulate(taken, [1.0 if index % 2 else -1.0 for index in range(len(taken))])
        engine.step()
        assert apart(engine, taken).max() > 100 * BOUND
        engine.publish()
    assert apart(engine, sampled(engine, "last")).max() <= BOUND

"""The sampler's own log-probs against the learner's of the same tokens, through a real local engine."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from local_model import make_row
from strop.engines.local.engine import LocalConfig, LocalEngine
from strop.engines.local.weights import LoraShape
from strop.inference.sampling import Sampled, SamplingParams
from strop.trajectory.tokens import Row

pytestmark = pytest.mark.usefixtures("one_thread")

PROMPT = [3, 9, 2]


@pytest.fixture
def engine(tiny_model: Path) -> Iterator[LocalEngine]:
    config = LocalConfig(
        model=str(tiny_model), lora=LoraShape(rank=4), dtype="float32", device="cpu", slots=8, max_length=64
    )
    opened = LocalEngine(config)
    yield opened
    opened.close()


def rows_of(engine: LocalEngine, temperature: float, top_p: float = 1.0) -> list[Row]:
    async def drawn() -> list[Sampled]:
        calls = [
            SamplingParams(max_tokens=6, temperature=temperature, top_p=top_p, seed=seed)
            for seed in range(24)
        ]
        return await asyncio.gather(*(engine.sampler.sample(PROMPT, c, model="policy") for c in calls))

    return [
        make_row(
            [*PROMPT, *sampled.ids],
            [0] * len(PROMPT) + [1] * len(sampled.ids),
            temperature=temperature,
            logprobs=sampled.logprobs,
        )
        for sampled in asyncio.run(drawn())
    ]


@pytest.mark.parametrize("temperature", [0.6, 1.0, 1.7])
def test_t16_at_any_temperature_the_ratio_is_one(engine: LocalEngine, temperature: float) -> None:
    """Log-probs before the temperature, or divided by it afterwards, gave 2.0 at 0.6 elsewhere."""
    learned = engine.accumulate(rows_of(engine, temperature), [1.0] * 24)
    assert learned["tokens"] > 24
    assert learned["ratio"] == pytest.approx(1.0, abs=1e-4)
    assert learned["mismatch"] < 1e-4


def test_t17_a_cut_distribution_shows_in_the_ratio(engine: LocalEngine) -> None:
    """The sampler normalises again what top_p keeps: the ratio is the kept mass, of at least 0.8."""
    rows = rows_of(engine, 1.0, top_p=0.8)
    learned = engine.accumulate(rows, [1.0] * 24)
    kept = np.concatenate(
        [
            np.exp(values - row.logprobs[row.mask])
            for values, row in zip(engine.logprobs(rows, "policy"), rows, strict=True)
        ]
    )
    assert learned["ratio"] == pytest.approx(kept.mean(), rel=1e-4)
    assert kept.min() > 0.8 - 1e-4
    assert learned["ratio"] < 0.95

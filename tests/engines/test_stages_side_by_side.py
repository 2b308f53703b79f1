"""One device for all: rollouts, a judge and an update at the same time, each the same as alone."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from local_model import make_row
from strop.engines.local.engine import LocalConfig, LocalEngine
from strop.engines.local.learner import LearnerSettings
from strop.engines.local.weights import LoraShape, adapter_tensors
from strop.inference.sampling import Sampled, SamplingParams
from strop.trajectory.tokens import Row

pytestmark = pytest.mark.usefixtures("one_thread")

PROMPT = (5, 9, 4, 11, 7)
JUDGE = "judge"
LONG = 60


@contextmanager
def engine_on(model: Path) -> Iterator[LocalEngine]:
    engine = LocalEngine(
        LocalConfig(
            model=str(model),
            lora=LoraShape(rank=4),
            learner=LearnerSettings(learning_rate=2e-2),
            dtype="float32",
            device="cpu",
            max_length=256,
        )
    )
    engine.serve_adapter(JUDGE, None, 4)
    try:
        yield engine
    finally:
        engine.close()


async def cohort(engine: LocalEngine, name: str, model: str, heard: list[str]) -> list[Sampled]:
    """Three sessions of one call each; `heard` gets the name with each token."""
    keys = [f"{name}-{number}" for number in range(3)]
    engine.sampler.open(keys)

    async def one(number: int) -> Sampled:
        params = SamplingParams(max_tokens=LONG, seed=number, temperature=1.0)
        got = await engine.sampler.sample(
            PROMPT, params, model=model, session=keys[number], on_token=lambda *_: heard.append(name)
        )
        engine.sampler.shut(keys[number])
        return got

    return list(await asyncio.gather(*(one(number) for number in range(3))))


def rows() -> list[Row]:
    rng = np.random.default_rng(0)
    ids = [rng.integers(3, 60, 40).tolist() for _ in range(4)]
    return [make_row(one, [0] * 10 + [1] * 30, logprobs=[-4.0] * 30) for one in ids]


def update(engine: LocalEngine) -> dict[str, bytes]:
    """Three optimizer steps; the adapter's bytes after them."""
    for _ in range(3):
        engine.accumulate(rows(), [1.0, -1.0, 0.5, -0.5])
        engine.step()
    tensors = adapter_tensors(engine.learner.model, "policy")
    return {name: tensor.detach().numpy().tobytes() for name, tensor in tensors.items()}


def said(found: list[Sampled]) -> list[tuple[tuple[int, ...], tuple[float, ...]]]:
    return [(one.ids, one.logprobs) for one in found]


def test_rollouts_and_a_judge_take_turns_and_neither_starves(tiny_model: Path) -> None:
    """While both have something to say, neither is heard for more than a few steps without the other."""
    heard: list[str] = []

    async def both(engine: LocalEngine) -> None:
        await asyncio.gather(
            cohort(engine, "rollout", "policy", heard), cohort(engine, "judged", JUDGE, heard)
        )

    with engine_on(tiny_model) as engine:
        for served in engine.sampler._served.values():
            # One that ended early would be waited for, and how long is up to its client's thread.
            served.eos_ids = frozenset()
        asyncio.run(both(engine))
    assert len(heard) == 2 * 3 * LONG
    first, last = heard.index("judged"), len(heard) - heard[::-1].index("judged")
    shared = heard[max(first, heard.index("rollout")) : min(last, len(heard) - heard[::-1].index("rollout"))]
    assert len(shared) > 20
    runs = "".join("r" if name == "rollout" else "j" for name in shared).replace("rj", "r j")
    longest = max(len(run) for part in runs.split() for run in part.replace("jr", "j r").split())
    # Three sessions a side give three tokens a step; a few steps more where one side is still being read in.
    assert longest <= 3 * 5


def test_an_update_is_the_same_while_others_decode_and_they_are_too(tiny_model: Path) -> None:
    async def beside(engine: LocalEngine) -> tuple[dict[str, bytes], list[Sampled], list[Sampled]]:
        updated, rolled, judged = await asyncio.gather(
            asyncio.to_thread(update, engine),
            cohort(engine, "rollout", "policy", []),
            cohort(engine, "judged", JUDGE, []),
        )
        return updated, rolled, judged

    with engine_on(tiny_model) as engine:
        rolled = asyncio.run(cohort(engine, "rollout", "policy", []))
        judged = asyncio.run(cohort(engine, "judged", JUDGE, []))
        alone = update(engine)
    with engine_on(tiny_model) as engine:
        found = asyncio.run(beside(engine))
    assert found[0] == alone
    assert (said(found[1]), said(found[2])) == (said(rolled), said(judged))
    assert said(rolled)[0] != said(rolled)[1]

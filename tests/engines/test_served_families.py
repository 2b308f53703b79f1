"""What is served of many architectures is what the learner scores: the same log-probs within 1e-4 nats."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from families import ALONE, EVERY, MASKED, PACKED, TARGETS, family
from local_model import make_row, write_tokenizer
from strop.engines.local.engine import LocalConfig, LocalEngine
from strop.engines.local.learner import Learner, LearnerSettings
from strop.engines.local.sampler import LocalSampler
from strop.engines.local.weights import LoraShape, adapted, adapter_tensors, folded
from strop.inference.sampling import SamplingParams
from strop.trajectory.tokens import Row

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings("ignore:.*(rows are read one by one|decoded without a cache):RuntimeWarning"),
]

BOUND = {torch.float32: 1e-4, torch.bfloat16: 0.15}
SYSTEM = [3 + index % 40 for index in range(66)]
ATTEMPTS, TURNS = 3, 2


@pytest.fixture
def sampler() -> Iterator[LocalSampler]:
    own = LocalSampler("cpu", slots=4, max_length=200)
    yield own
    own.close()


def opened(sampler: LocalSampler, name: str, dtype: torch.dtype = torch.float32) -> Learner:
    """The learner of a random adapter, and the sampler serving the same folded in."""
    base = family(name).to(dtype)
    shape = LoraShape(rank=4, targets=TARGETS.get(name, "all-linear"))
    model = adapted(base, shape, None, seed=1)
    with torch.no_grad():
        for parameter in adapter_tensors(model, "policy").values():
            parameter.add_(0.05 * torch.randn(parameter.shape))
    sampler.serve("policy", 0, folded(base, model, "policy"), eos_ids=frozenset(), decode=str)
    return Learner(model, LearnerSettings())


def sampled(sampler: LocalSampler) -> list[Row]:
    """Attempts of one group over two turns; the second goes on where the first ended."""

    async def attempt(number: int) -> Row:
        ids, mask, logprobs = [*SYSTEM, 10 + number], [0] * (len(SYSTEM) + 1), list[float]()
        for turn in range(TURNS):
            params = SamplingParams(max_tokens=7 + number, temperature=0.9, seed=10 * number + turn)
            reply = await sampler.sample(ids, params, model="policy")
            ids, logprobs = [*ids, *reply.ids, 5, 6], [*logprobs, *reply.logprobs]
            mask = [*mask, *[1] * len(reply.ids), 0, 0]
        return make_row(ids, mask, temperature=0.9, logprobs=logprobs)

    async def group() -> list[Row]:
        return await asyncio.gather(*map(attempt, range(ATTEMPTS)))

    return asyncio.run(group())


def furthest(learner: Learner, rows: list[Row]) -> float:
    scored = learner.score(rows, "policy")
    return max(
        float(np.abs(one.logprobs - row.logprobs[row.mask]).max())
        for one, row in zip(scored, rows, strict=True)
    )


@pytest.mark.parametrize("name", list(EVERY))
def test_sampler_and_learner_agree(name: str, sampler: LocalSampler) -> None:
    learner = opened(sampler, name)
    rows = sampled(sampler)
    assert sum(int(row.mask.sum()) for row in rows) == TURNS * sum(7 + n for n in range(ATTEMPTS))
    assert furthest(learner, rows) < BOUND[torch.float32]
    assert bool(sampler.notes) == (name in MASKED or name in ALONE)


@pytest.mark.parametrize("name", ["llama", "qwen3", "gemma2", "gemma3"])
def test_sampler_and_learner_agree_in_bfloat16(name: str, sampler: LocalSampler) -> None:
    learner = opened(sampler, name, torch.bfloat16)
    assert furthest(learner, sampled(sampler)) < BOUND[torch.bfloat16]


@pytest.mark.parametrize("name", sorted(PACKED))
def test_a_model_that_is_packed_is_served_from_slots(name: str, sampler: LocalSampler) -> None:
    opened(sampler, name)
    assert sampler.notes == ()


@pytest.mark.parametrize(("name", "notes"), [("gemma2", 0), ("qwen3", 0), ("gpt_oss", 1), ("lfm2", 2)])
def test_an_engine_trains_and_publishes_it_and_says_what_is_slow(
    name: str, notes: int, tmp_path: Path
) -> None:
    """From files on disk to a published version whose probe holds; `info` names each slow half once."""
    family(name, bos_token_id=1, eos_token_id=2).save_pretrained(tmp_path)
    config = LocalConfig(
        model=str(write_tokenizer(tmp_path)),
        lora=LoraShape(rank=4, targets=TARGETS.get(name, "all-linear")),
        learner=LearnerSettings(learning_rate=1e-2),
        dtype="float32",
        device="cpu",
        slots=4,
        max_length=200,
    )
    engine = LocalEngine(config)
    try:
        rows = sampled(engine.sampler)
        assert engine.accumulate(rows, [1.0, -0.5, 0.3])["mismatch"] < BOUND[torch.float32]
        assert engine.step()["grad_norm"] > 0
        published = engine.publish()
        assert published.version == 1
        assert published.probe_gap < 1e-3 < (published.probe_separation or 0)
        assert len(engine.info.notes) == notes
        assert all(note.startswith(f"{name}: ") and "\n" not in note for note in engine.info.notes)
    finally:
        engine.close()

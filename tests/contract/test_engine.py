"""The contract of `strop.engine.Engine`, over every engine there is.

To add an engine, append an `EngineCase` to CASES. What the contract needs beyond the seam is how to
read and move the policy's trained parameters, and how to ask what is being served.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from strop.engine import Engine
from strop.engines.fake import FakeConfig, FakeEngine
from strop.errors import EngineError
from strop.inference.sampling import Sampler, SamplingParams
from strop.trajectory.tokens import Row

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class EngineCase:
    """`make(fixture)` gives the same untrained engine every time, at a learning rate fit for the bandit;
    `fixture(name)` is the value of a fixture, such as the folder of a tiny language model.

    `get`, `set` read and move all trained parameters as one float64 vector; `gradient` is the one
    that `step` would use, in the same order. `rounding` bounds what batch size and padding may
    change in a log-prob, `finite_difference` the relative error of a gradient.
    """

    name: str
    make: Callable[..., Engine]
    sampler: Callable[[Any], Sampler]
    get: Callable[[Any], Floats]
    set: Callable[[Any, Floats], None]
    gradient: Callable[[Any], Floats]
    difference_step: float
    finite_difference: float
    rounding: float


def _set_fake(engine: FakeEngine, vector: Floats) -> None:
    engine.delta = vector.reshape(engine.delta.shape)


def _local_config(model: Path) -> Any:
    from strop.engines.local.engine import LocalConfig
    from strop.engines.local.learner import LearnerSettings
    from strop.engines.local.weights import LoraShape

    return LocalConfig(
        model=str(model),
        lora=LoraShape(rank=2, targets=["q_proj", "v_proj", "up_proj"]),
        learner=LearnerSettings(learning_rate=2e-2),
        dtype="float32",
        device="cpu",
        slots=4,
        max_length=64,
    )


def _make_local(fixture: Callable[[str], Any]) -> Engine:
    from strop.engines.local.engine import LocalEngine

    return LocalEngine(_local_config(fixture("tiny_model")))


def _make_vllm(fixture: Callable[[str], Any]) -> Engine:
    """All engines share one server: starting it takes most of a minute, and none minds the others."""
    from strop.engines.opening import vllm
    from strop.engines.vllm.settings import VllmSettings

    server = fixture("vllm_server")
    return vllm(_local_config(server.model), VllmSettings(url=server.url))


def _get_local(engine: Any) -> Floats:
    return np.concatenate([p.detach().double().numpy().ravel() for p in engine.learner.parameters])


def _set_local(engine: Any, vector: Floats) -> None:
    import torch

    with torch.no_grad():
        for p in engine.learner.parameters:
            part, vector = vector[: p.numel()], vector[p.numel() :]
            p.copy_(torch.from_numpy(part.reshape(p.shape)))


def _gradient_local(engine: Any) -> Floats:
    each = [p.grad.double().numpy().ravel() for p in engine.learner.parameters]
    return np.concatenate(each) / sum(int(r.mask.sum()) for r in ROWS)


CASES = [
    EngineCase(
        name="fake",
        make=lambda fixture: FakeEngine(FakeConfig(learning_rate=0.2)),
        sampler=lambda engine: engine.sampler,
        get=lambda engine: engine.delta.ravel().copy(),
        set=_set_fake,
        gradient=lambda engine: engine.gradient.ravel(),
        difference_step=1e-6,
        finite_difference=1e-6,
        rounding=1e-12,
    ),
    EngineCase(
        name="local",
        make=_make_local,
        sampler=lambda engine: engine.sampler,
        get=_get_local,
        set=_set_local,
        gradient=_gradient_local,
        difference_step=1e-3,
        finite_difference=3e-2,
        rounding=1e-5,
    ),
    EngineCase(
        name="vllm",
        make=_make_vllm,
        sampler=lambda engine: engine.sampler,
        get=_get_local,
        set=_set_local,
        gradient=_gradient_local,
        difference_step=1e-3,
        finite_difference=3e-2,
        rounding=1e-5,
    ),
]


def _marked(case: EngineCase) -> Any:
    slow_start = [pytest.mark.vllm, pytest.mark.timeout(3600)]
    return pytest.param(case, id=case.name, marks=slow_start if case.name == "vllm" else [])


@pytest.fixture(params=map(_marked, CASES))
def case(request: pytest.FixtureRequest) -> Iterator[EngineCase]:
    """The case, with a `make()` whose engines are closed after the test."""
    if request.param.name == "vllm":
        request.getfixturevalue("vllm_server")
    if request.param.name != "fake":
        request.getfixturevalue("one_thread")
    made: list[Engine] = []

    def make() -> Engine:
        made.append(request.param.make(request.getfixturevalue))
        return made[-1]

    yield replace(request.param, make=make)
    for engine in made:
        engine.close()


@pytest.fixture
def engine(case: EngineCase) -> Engine:
    return case.make()


def row(ids: Sequence[int], mask: Sequence[int], name: str = "t") -> Row:
    return Row(
        trajectory_id=name,
        ids=np.array(ids, dtype=np.int64),
        mask=np.array(mask, dtype=np.bool_),
        logprobs=np.zeros(len(ids)),
        turn_of=np.where(np.array(mask), 0, -1).astype(np.int64),
    )


ROWS = [
    row([1, 2, 3, 4], [0, 0, 1, 1]),
    row([1, 2, 5, 6, 7, 8, 9, 3], [0, 0, 1, 0, 1, 1, 0, 1]),
    row([1, 2, 3, 9], [0, 0, 1, 1]),
    row([4, 4], [0, 1]),
]
ADVANTAGES = [1.0, -0.5, 0.25, -1.5]


def on_policy(engine: Engine, rows: Sequence[Row]) -> list[Row]:
    """The rows as if the engine had just sampled them."""
    return [with_logprobs(r, lp) for r, lp in zip(rows, engine.logprobs(rows, "policy"), strict=True)]


def with_logprobs(row: Row, values: Floats) -> Row:
    logprobs = np.zeros(len(row.ids))
    logprobs[row.mask] = values
    return replace(row, logprobs=logprobs)


def train_once(engine: Engine) -> None:
    engine.accumulate(on_policy(engine, ROWS), ADVANTAGES)
    engine.step()


def test_log_ratio_is_exactly_zero_before_the_first_step(engine: Engine) -> None:
    policy, reference = engine.logprobs(ROWS, "policy"), engine.logprobs(ROWS, "reference")
    for mine, start in zip(policy, reference, strict=True):
        np.testing.assert_array_equal(mine, start)
    train_once(engine)
    moved = engine.logprobs(ROWS, "policy")
    assert max(np.abs(a - b).max() for a, b in zip(moved, reference, strict=True)) > 0
    for now, start in zip(engine.logprobs(ROWS, "reference"), reference, strict=True):
        np.testing.assert_array_equal(now, start)


def test_one_float64_log_prob_for_each_sampled_token(engine: Engine) -> None:
    for r, values in zip(ROWS, engine.logprobs(ROWS, "policy"), strict=True):
        assert values.dtype == np.float64
        assert values.shape == (r.mask.sum(),)
        assert np.isfinite(values).all()
        assert (values < 0).all()


def test_a_batch_is_its_rows_one_by_one(engine: Engine, case: EngineCase) -> None:
    together = engine.logprobs(ROWS, "policy")
    backwards = engine.logprobs(ROWS[::-1], "policy")[::-1]
    for r, a, b in zip(ROWS, together, backwards, strict=True):
        alone = engine.logprobs([r], "policy")[0]
        np.testing.assert_allclose(a, alone, rtol=0, atol=case.rounding)
        np.testing.assert_allclose(a, b, rtol=0, atol=case.rounding)


def test_score_and_logprobs_agree(engine: Engine, case: EngineCase) -> None:
    train_once(engine)
    vocab = engine.info.vocab_size
    for full, values in zip(engine.score(ROWS, "policy"), engine.logprobs(ROWS, "policy"), strict=True):
        np.testing.assert_allclose(full.logprobs, values, rtol=0, atol=case.rounding)
        assert ((full.entropy > 0) & (full.entropy < np.log(vocab))).all()
        assert (full.self_certainty > 0).all()
        assert (full.topk_logprob < 0).all()


def test_the_gradient_does_not_depend_on_how_rows_are_split(case: EngineCase) -> None:
    whole, split = case.make(), case.make()
    rows = on_policy(whole, ROWS)
    whole.accumulate(rows, ADVANTAGES)
    for r, advantage in zip(rows, ADVANTAGES, strict=True):
        split.accumulate([r], [advantage])
    norm = whole.step()["grad_norm"]
    assert split.step()["grad_norm"] == pytest.approx(norm, rel=1e-5)
    assert norm > 0


def test_no_advantage_and_no_mask_move_nothing(engine: Engine, case: EngineCase) -> None:
    """Nor does the optimizer's momentum of a step before."""
    train_once(engine)
    before = case.get(engine)
    silent = row([1, 2, 3], [0, 0, 0])
    engine.accumulate([*on_policy(engine, ROWS[:2]), silent], [0.0, 0.0, 5.0])
    assert engine.step()["grad_norm"] == 0.0
    np.testing.assert_array_equal(case.get(engine), before)


def test_what_is_masked_and_follows_moves_nothing(case: EngineCase) -> None:
    """A prompt-only tail has no influence on the gradient of what came before it."""
    norms = []
    for tail in ([], [11, 12], [13, 14]):
        engine = case.make()
        rows = [row([1, 2, 3, 4, *tail], [0, 0, 1, 1] + [0] * len(tail))]
        engine.accumulate(on_policy(engine, rows), [1.0])
        norms.append(engine.step()["grad_norm"])
    assert norms == pytest.approx([norms[0]] * 3, rel=1e-5)


def test_the_gradient_equals_finite_differences(engine: Engine, case: EngineCase) -> None:
    """On policy every clipped surrogate has the gradient of -(1/N) sum over tokens of A log π."""
    train_once(engine)
    rows = on_policy(engine, ROWS)
    tokens = sum(int(r.mask.sum()) for r in rows)
    start = case.get(engine)

    def objective(vector: Floats) -> float:
        case.set(engine, vector)
        values = engine.logprobs(rows, "policy")
        return -sum(a * float(v.sum()) for a, v in zip(ADVANTAGES, values, strict=True)) / tokens

    engine.accumulate(rows, ADVANTAGES)
    gradient = case.gradient(engine).copy()
    rng = np.random.default_rng(0)
    for direction in (gradient / np.linalg.norm(gradient), *rng.standard_normal((2, start.size))):
        step = case.difference_step * direction
        slope = (objective(start + step) - objective(start - step)) / (2 * case.difference_step)
        assert slope == pytest.approx(float(gradient @ direction), rel=case.finite_difference, abs=1e-9)
    case.set(engine, start)


def test_the_rewarded_arm_of_a_bandit_wins(engine: Engine) -> None:
    left, right = row([1, 2, 3], [0, 0, 1]), row([1, 2, 4], [0, 0, 1])

    def preference() -> float:
        a, b = engine.logprobs([left, right], "policy")
        return float(np.exp(a[0]) / (np.exp(a[0]) + np.exp(b[0])))

    start = preference()
    for _ in range(30):
        engine.accumulate(on_policy(engine, [left, right]), [1.0, -1.0])
        engine.step()
    assert preference() > max(0.95, start)


def test_save_then_load_continues_bit_for_bit(case: EngineCase, tmp_path: Path) -> None:
    straight = case.make()
    train_once(straight)
    straight.save(tmp_path)
    other = case.make()
    other.load(tmp_path)
    for engine in (straight, other):
        train_once(engine)
        train_once(engine)
    np.testing.assert_array_equal(case.get(straight), case.get(other))
    assert straight.publish().version == other.publish().version


def test_load_restores_the_reference_and_serves_nothing_new(case: EngineCase, tmp_path: Path) -> None:
    trained = case.make()
    reference = trained.logprobs(ROWS, "reference")
    train_once(trained)
    trained.save(tmp_path)
    other = case.make()
    served = asyncio.run(greedy_logprobs(case, other))
    other.load(tmp_path)
    assert asyncio.run(greedy_logprobs(case, other)) == served
    for now, start in zip(other.logprobs(ROWS, "reference"), reference, strict=True):
        np.testing.assert_array_equal(now, start)


async def greedy_logprobs(case: EngineCase, engine: Engine) -> tuple[tuple[float, ...], int]:
    sampler = case.sampler(engine)
    params = SamplingParams(max_tokens=4, seed=11)
    drawn = await sampler.sample([1, 2], params, model=sampler.models()[0])
    return drawn.logprobs, drawn.version


def test_publish_raises_the_version_and_changes_what_is_served(engine: Engine, case: EngineCase) -> None:
    before = asyncio.run(greedy_logprobs(case, engine))
    version = engine.info.policy_version
    for _ in range(3):
        train_once(engine)
    assert asyncio.run(greedy_logprobs(case, engine)) == before
    published = engine.publish()
    after = asyncio.run(greedy_logprobs(case, engine))
    assert published.version == version + 1 == engine.info.policy_version == after[1]
    assert published.probe_gap <= published.probe_bound
    assert case.sampler(engine).models()[0] == published.name
    assert after[0] != before[0]
    assert engine.publish().name != published.name


def test_what_the_sampler_says_is_what_the_scorer_says(engine: Engine, case: EngineCase) -> None:
    train_once(engine)
    published = engine.publish()

    async def draw() -> Row:
        params = SamplingParams(max_tokens=8, seed=5)
        drawn = await case.sampler(engine).sample([1, 2], params, model=published.name)
        ids = [1, 2, *drawn.ids]
        return with_logprobs(row(ids, [0, 0] + [1] * len(drawn.ids)), np.array(drawn.logprobs))

    sampled = asyncio.run(draw())
    scored = engine.logprobs([sampled], "policy")[0]
    np.testing.assert_allclose(scored, sampled.logprobs[sampled.mask], rtol=0, atol=published.probe_bound)


def test_both_objectives_report_the_agreed_metrics(engine: Engine) -> None:
    rows = on_policy(engine, ROWS)
    learned = engine.accumulate(rows, ADVANTAGES)
    assert set(learned) == {"tokens", "ratio", "mismatch", "clip_share", "entropy", "loss"}
    assert learned["tokens"] == 9.0
    assert learned["ratio"] == pytest.approx(1.0, abs=1e-5)
    assert learned["mismatch"] == pytest.approx(0.0, abs=1e-5)
    assert learned["clip_share"] == 0.0
    entropy = np.concatenate([scored.entropy for scored in engine.score(ROWS, "policy")])
    assert learned["entropy"] == pytest.approx(entropy.mean(), rel=1e-5)
    # ratio 1: minus the mean advantage over tokens, 2, 4, 2 and 1 of them
    assert learned["loss"] == pytest.approx(-(2 * 1.0 - 4 * 0.5 + 2 * 0.25 - 1.5) / 9, abs=1e-5)
    assert set(engine.accumulate(ROWS, ADVANTAGES, "supervised")) == {"tokens", "loss"}
    assert engine.accumulate([row([1, 2], [0, 0])], [1.0]) == {"tokens": 0.0}
    assert set(engine.step()) == {"grad_norm", "learning_rate"}


def test_a_ratio_beyond_the_bound_is_clipped(engine: Engine) -> None:
    """The policy has moved on and finds what was sampled e² times as likely: enough of that."""
    train_once(engine)
    sampled = [with_logprobs(r, lp - 2) for r, lp in zip(ROWS, engine.logprobs(ROWS, "policy"), strict=True)]
    learned = engine.accumulate(sampled, [1.0] * len(ROWS))
    assert learned["clip_share"] == 1.0
    assert learned["ratio"] == pytest.approx(np.exp(2), rel=1e-4)
    assert learned["mismatch"] == pytest.approx(2.0, rel=1e-4)
    assert engine.step()["grad_norm"] == 0.0


def test_a_step_without_a_token_is_an_error(engine: Engine) -> None:
    with pytest.raises(EngineError, match="no token was accumulated"):
        engine.step()


def test_a_version_never_comes_back(engine: Engine, tmp_path: Path) -> None:
    engine.save(tmp_path)
    train_once(engine)
    names = [engine.publish().name]
    engine.load(tmp_path)
    names.append(engine.publish().name)
    assert len(set(names)) == 2


def test_close_twice_is_fine(case: EngineCase) -> None:
    engine = case.make()
    engine.close()
    engine.close()
    with pytest.raises(EngineError, match="closed"):
        engine.step()

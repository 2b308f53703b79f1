"""Grade every step of trajectories: policy read against reference, both by re-scoring."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

import numpy as np

from strop.engine import Engine, Scored
from strop.errors import InputError
from strop.grader.ratio import Floats, log_ratio
from strop.grader.segment import Step, steps
from strop.grader.spans import Decode, token_kinds
from strop.trajectory.model import Trajectory
from strop.trajectory.tokens import Row, rows


@dataclass(frozen=True, slots=True, kw_only=True)
class StepGrade:
    """One step. Numbers are of its sampled tokens; log-probs and grades in nats (grades times β).

    `grade` β · Σ (log π − log π_ref), the progress advantage; `mean` the same per token;
    `policy_logprob`, `reference_logprob` sums; the rest are means under the policy, each with the
    sign of its definition: `entropy`, `self_certainty` = KL(uniform ‖ π), `deepconf` = −mean log-prob
    of the 20 likeliest tokens (both: higher is more certain). `spans` grade by kind of token, where
    the tokens' text was at hand; they add up to `grade`.
    """

    index: int
    message_index: int
    n_tokens: int
    grade: float
    mean: float
    policy_logprob: float
    reference_logprob: float
    entropy: float
    self_certainty: float
    deepconf: float
    spans: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Graded:
    """The grades of one trajectory, or `ungraded`: the reason why it has none. Never both.

    `truth` and `first_wrong_step` are copied for audits; grading never reads them.
    """

    trajectory_id: str
    scenario_id: str
    group_id: str
    beta: float = 1.0
    steps: tuple[StepGrade, ...] = ()
    ungraded: str | None = None
    truth: float | None = None
    first_wrong_step: int | None = None

    @property
    def sum(self) -> float | None:
        """Σ of step grades, the theory's score among attempts at one scenario; None where ungraded."""
        return float(np.sum([s.grade for s in self.steps])) if self.steps else None

    @property
    def mean(self) -> float | None:
        """Mean step grade; None where ungraded."""
        return float(np.mean([s.grade for s in self.steps])) if self.steps else None

    @property
    def lowest(self) -> StepGrade | None:
        """The step with the lowest grade, the first of them on ties; None where ungraded."""
        return min(self.steps, key=lambda s: s.grade) if self.steps else None


def grade(
    trajectories: Iterable[Trajectory],
    engine: Engine,
    *,
    beta: float = 1.0,
    decode: Decode | None = None,
    batch: int = 16,
) -> Iterator[Graded]:
    """Grades in the order given, read `batch` trajectories at a time.

    Policy equal to reference gives exactly 0 everywhere. `decode` turns token ids into text and is
    needed only for `spans`. A trajectory that cannot be graded whole (no turns, a message without a
    turn, too long for the engine, a number that is not finite) is ungraded with the reason.
    """
    coming, reader = iter(trajectories), _Reader(engine, beta, decode)
    while some := list(islice(coming, batch)):
        yield from _grade_batch(some, reader)


@dataclass(frozen=True, slots=True)
class _Reader:
    engine: Engine
    beta: float
    decode: Decode | None

    def score(self, wanted: Sequence[Row]) -> list[tuple[Scored, Scored]]:
        policy = self.engine.score(wanted, "policy")
        reference = self.engine.score(wanted, "reference")
        return list(zip(policy, reference, strict=True))


def _grade_batch(trajectories: Sequence[Trajectory], reader: _Reader) -> Iterator[Graded]:
    prepared = [_rows_or_reason(t) for t in trajectories]
    flat = [row for some in prepared if not isinstance(some, str) for row in some]
    try:
        scores = iter(reader.score(flat) if flat else [])
    except InputError as error:
        # One row that the engine refuses must not take the batch with it: read them one by one.
        if len(trajectories) > 1:
            for trajectory in trajectories:
                yield from _grade_batch([trajectory], reader)
        else:
            yield _ungraded(trajectories[0], reader.beta, str(error))
        return
    for trajectory, some in zip(trajectories, prepared, strict=True):
        if isinstance(some, str):
            yield _ungraded(trajectory, reader.beta, some)
        else:
            yield _graded(trajectory, some, [next(scores) for _ in some], reader)


def _rows_or_reason(trajectory: Trajectory) -> list[Row] | str:
    try:
        made = rows(trajectory.trajectory_id, trajectory.turns)
        steps(trajectory, made)
    except InputError as error:
        return str(error)
    return made


def _graded(
    trajectory: Trajectory, made: Sequence[Row], scores: Sequence[tuple[Scored, Scored]], reader: _Reader
) -> Graded:
    try:
        graded = tuple(_step(step, made, scores, reader) for step in steps(trajectory, made))
    except InputError as error:
        return _ungraded(trajectory, reader.beta, str(error))
    return replace(_blank(trajectory, reader.beta), steps=graded)


def _ungraded(trajectory: Trajectory, beta: float, reason: str) -> Graded:
    return replace(_blank(trajectory, beta), ungraded=reason)


def _blank(trajectory: Trajectory, beta: float) -> Graded:
    return Graded(
        trajectory_id=trajectory.trajectory_id,
        scenario_id=trajectory.scenario_id,
        group_id=trajectory.group_id,
        beta=beta,
        truth=trajectory.truth,
        first_wrong_step=trajectory.first_wrong_step,
    )


def _step(
    step: Step, made: Sequence[Row], scores: Sequence[tuple[Scored, Scored]], reader: _Reader
) -> StepGrade:
    policy, reference_scores = [p for p, _ in scores], [r for _, r in scores]
    logprobs = _of_step(step, policy, lambda s: s.logprobs)
    reference = _of_step(step, reference_scores, lambda s: s.logprobs)
    ratios = reader.beta * log_ratio(logprobs, reference)
    return StepGrade(
        index=step.index,
        message_index=step.message_index,
        n_tokens=int(ratios.size),
        grade=float(ratios.sum()),
        mean=float(ratios.mean()),
        policy_logprob=float(logprobs.sum()),
        reference_logprob=float(reference.sum()),
        entropy=float(_of_step(step, policy, lambda s: s.entropy).mean()),
        self_certainty=float(_of_step(step, policy, lambda s: s.self_certainty).mean()),
        deepconf=-float(_of_step(step, policy, lambda s: s.topk_logprob).mean()),
        spans=_by_kind(step, made, ratios, reader.decode),
    )


def _of_step(step: Step, scored: Sequence[Scored], read: Callable[[Scored], Floats]) -> Floats:
    arrays = [read(scored[part.row]) for part in step.parts]
    if any(part.sampled[-1] >= len(a) for part, a in zip(step.parts, arrays, strict=True)):
        raise InputError(f"step {step.index}: the engine scored only a part of its tokens")
    values = np.concatenate([a[p.sampled] for p, a in zip(step.parts, arrays, strict=True)])
    if not np.isfinite(values).all():
        raise InputError(f"step {step.index}: the engine gave a number that is not finite")
    return values


def _by_kind(step: Step, made: Sequence[Row], ratios: Floats, decode: Decode | None) -> dict[str, float]:
    if decode is None:
        return {}
    kinds: list[str] = []
    for part in step.parts:
        kinds += token_kinds([int(i) for i in made[part.row].ids[part.positions]], decode)
    totals: dict[str, float] = {}
    for kind, ratio in zip(kinds, ratios, strict=True):
        totals[kind] = totals.get(kind, 0.0) + float(ratio)
    return totals

"""Grade every step of trajectories: policy read against reference, both by re-scoring."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from strop.engine import Against, Contrast, Contrasted, Engine
from strop.errors import InputError
from strop.grader.prepare import Prepared, from_turns
from strop.grader.ratio import Floats, log_ratio
from strop.grader.segment import Step
from strop.grader.sliding import NEVER, Long, Window, joined, shown, unseen, windows
from strop.grader.spans import Decode, Kind, text_kinds, token_kinds
from strop.grader.step_readings import SpanReading, StepTokens, read_spans
from strop.trajectory.model import Trajectory
from strop.trajectory.tokens import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class StepGrade:
    """One step. Numbers are of its sampled tokens; log-probs and grades in nats (grades times β).

    `grade` β · Σ (log π − log π_ref), the progress advantage; `mean` the same per token;
    `policy_logprob`, `reference_logprob` sums; the rest are means under the policy, each with the
    sign of its definition: `entropy`, `self_certainty` = KL(uniform ‖ π), `deepconf` = −mean log-prob
    of the 20 likeliest tokens (both: higher is more certain); None where whoever scored gives log-probs
    only. `spans` grade by kind of token, where the tokens' text was at hand; they add up to `grade`.

    All of these are against the first reference. `readings` by reference and span hold every aggregate,
    without β. `context_lost` tokens before some of the step's were not shown to the models. `tokens`
    are the single tokens, where asked for.
    """

    index: int
    message_index: int
    n_tokens: int
    grade: float
    mean: float
    policy_logprob: float
    reference_logprob: float
    entropy: float | None
    self_certainty: float | None
    deepconf: float | None
    spans: Mapping[str, float] = field(default_factory=dict)
    readings: Mapping[str, Mapping[str, SpanReading]] = field(default_factory=dict)
    context_lost: int = 0
    tokens: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnscoredStep:
    """A step that has no grade, and why: never a 0."""

    index: int
    message_index: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Graded:
    """The grades of one trajectory, or `ungraded`: the reason why it has none. Never both.

    `unscored` are the steps that fell out of the models' context; sums are over the others.
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
    unscored: tuple[UnscoredStep, ...] = ()

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


@dataclass(frozen=True, slots=True, kw_only=True)
class GradeSettings:
    """How trajectories are read. `decode` and `kinds` turn ids into text, and text into kinds of token.

    `max_length` tokens are shown at once, None: all; `long` says how longer rows are read. As many
    trajectories are read together as have `batch_tokens` tokens, at most `batch`. `tokens` keeps single
    tokens' numbers.
    """

    beta: float = 1.0
    decode: Decode | None = None
    kinds: Callable[[str], list[Kind]] = text_kinds
    max_length: int | None = None
    long: Long = "slide"
    batch: int = 64
    batch_tokens: int = 65536
    tokens: bool = False


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
    settings = GradeSettings(beta=beta, decode=decode, batch=batch)
    yield from grade_prepared(map(from_turns, trajectories), EngineContrast(engine), settings)


def grade_prepared(
    prepared: Iterable[Prepared], contrast: Contrast, settings: GradeSettings
) -> Iterator[Graded]:
    """As `grade`, of anything that reads a policy against references. Holds one batch at a time."""
    reader = _Reader(contrast, settings)
    for some in _batches(prepared, settings):
        yield from _grade_batch(some, reader)


@dataclass(frozen=True, slots=True)
class EngineContrast:
    """An engine's policy against its reference, each scored by itself: no KL is known."""

    engine: Engine
    references: tuple[str, ...] = ("reference",)

    def read(self, rows: Sequence[Row]) -> list[Contrasted]:
        policy = self.engine.score(rows, "policy")
        reference = self.engine.score(rows, "reference")
        return [
            Contrasted(policy=p, references=(Against(logprobs=r.logprobs),))
            for p, r in zip(policy, reference, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class _Read:
    """A trajectory's rows as all models read them, and what they were not shown."""

    rows: Sequence[Contrasted]
    unseen: Sequence[Any]


@dataclass(frozen=True, slots=True)
class _Reader:
    contrast: Contrast
    settings: GradeSettings

    def read(self, some: Sequence[Prepared]) -> list[_Read]:
        """All rows of all trajectories in one call, so that what they share is computed once."""
        cuts = [[self._cut(row) for row in one.rows] for one in some]
        flat = [
            shown(row, window)
            for one, of_rows in zip(some, cuts, strict=True)
            for row, of_row in zip(one.rows, of_rows, strict=True)
            for window in of_row
        ]
        coming = iter(self.contrast.read(flat) if flat else [])
        return [
            _Read(
                [
                    joined(row, cut, [next(coming) for _ in cut], len(self.contrast.references))
                    for row, cut in zip(one.rows, of_rows, strict=True)
                ],
                [unseen(row, cut) for row, cut in zip(one.rows, of_rows, strict=True)],
            )
            for one, of_rows in zip(some, cuts, strict=True)
        ]

    def _cut(self, row: Row) -> list[Window]:
        return windows(row, self.settings.max_length or len(row.ids), self.settings.long)


def _batches(prepared: Iterable[Prepared], settings: GradeSettings) -> Iterator[list[Prepared]]:
    some: list[Prepared] = []
    tokens = 0
    for one in prepared:
        if some and (len(some) == settings.batch or tokens + one.tokens > settings.batch_tokens):
            yield some
            some, tokens = [], 0
        some.append(one)
        tokens += one.tokens
    if some:
        yield some


def _grade_batch(some: Sequence[Prepared], reader: _Reader) -> Iterator[Graded]:
    try:
        read = reader.read(some)
    except InputError as error:
        # One row that the engine refuses must not take the batch with it: it is found by halving.
        if len(some) > 1:
            middle = len(some) // 2
            yield from _grade_batch(some[:middle], reader)
            yield from _grade_batch(some[middle:], reader)
        else:
            yield _ungraded(some[0], reader, str(error))
        return
    for one, own in zip(some, read, strict=True):
        yield _graded(one, own, reader)


def _graded(one: Prepared, read: _Read, reader: _Reader) -> Graded:
    if one.reason is not None:
        return _ungraded(one, reader, one.reason)
    try:
        found = [_step(step, one, read, reader) for step in one.steps]
    except InputError as error:
        return _ungraded(one, reader, str(error))
    graded = tuple(step for step in found if isinstance(step, StepGrade))
    lost = tuple(step for step in found if isinstance(step, UnscoredStep))
    if not graded:
        return _ungraded(one, reader, lost[0].reason if lost else "no step")
    return replace(_blank(one.trajectory, reader), steps=graded, unscored=lost)


def _ungraded(one: Prepared, reader: _Reader, reason: str) -> Graded:
    return replace(_blank(one.trajectory, reader), ungraded=reason)


def _blank(trajectory: Trajectory, reader: _Reader) -> Graded:
    return Graded(
        trajectory_id=trajectory.trajectory_id,
        scenario_id=trajectory.scenario_id,
        group_id=trajectory.group_id,
        beta=reader.settings.beta,
        truth=trajectory.truth,
        first_wrong_step=trajectory.first_wrong_step,
    )


def _step(step: Step, one: Prepared, read: _Read, reader: _Reader) -> StepGrade | UnscoredStep:
    away = np.concatenate([read.unseen[part.row][part.sampled] for part in step.parts])
    lost = int((away == NEVER).sum())
    if lost:
        reason = f"{lost} of {away.size} tokens fell out of the models' context"
        return UnscoredStep(index=step.index, message_index=step.message_index, reason=reason)
    tokens = _tokens(step, one, read, reader)
    grade = _measured(step, read, next(iter(tokens.values())), reader.settings.beta)
    return replace(
        grade,
        readings={name: read_spans(of) for name, of in tokens.items()},
        context_lost=int(away.max()),
        tokens=_listed(step, one, tokens) if reader.settings.tokens else None,
    )


def _tokens(step: Step, one: Prepared, read: _Read, reader: _Reader) -> dict[str, StepTokens]:
    """The step's tokens against each reference."""
    policy, kinds = _of_step(step, read, lambda c: c.policy.logprobs), _kinds(step, one, reader.settings)

    def against(number: int) -> StepTokens:
        reference = _of_step(step, read, lambda c: c.references[number].logprobs)
        kl = _where_known(step, read, lambda c: c.references[number].kl)
        return StepTokens(policy=policy, reference=reference, kl=kl, kinds=kinds)

    return {name: against(number) for number, name in enumerate(reader.contrast.references)}


def _measured(step: Step, read: _Read, tokens: StepTokens, beta: float) -> StepGrade:
    ratios = beta * log_ratio(tokens.policy, tokens.reference)
    top = _mean_where_known(step, read, lambda c: c.policy.topk_logprob)
    return StepGrade(
        index=step.index,
        message_index=step.message_index,
        n_tokens=int(ratios.size),
        grade=float(ratios.sum()),
        mean=float(ratios.mean()),
        policy_logprob=float(tokens.policy.sum()),
        reference_logprob=float(tokens.reference.sum()),
        entropy=_mean_where_known(step, read, lambda c: c.policy.entropy),
        self_certainty=_mean_where_known(step, read, lambda c: c.policy.self_certainty),
        deepconf=None if top is None else -top,
        spans=_by_kind(tokens.kinds, ratios),
    )


def _mean_where_known(step: Step, read: _Read, value: Callable[[Contrasted], Floats | None]) -> float | None:
    found = _where_known(step, read, value)
    return None if found is None else float(found.mean())


def _where_known(step: Step, read: _Read, value: Callable[[Contrasted], Floats | None]) -> Floats | None:
    if any(value(read.rows[part.row]) is None for part in step.parts):
        return None
    return _of_step(step, read, lambda c: np.asarray(value(c)))


def _of_step(step: Step, read: _Read, value: Callable[[Contrasted], Floats]) -> Floats:
    values = np.concatenate([value(read.rows[part.row])[part.sampled] for part in step.parts])
    if not np.isfinite(values).all():
        raise InputError(f"step {step.index}: the engine gave a number that is not finite")
    return values


def _ids(step: Step, one: Prepared) -> list[list[int]]:
    return [one.rows[part.row].ids[part.positions].tolist() for part in step.parts]


def _kinds(step: Step, one: Prepared, settings: GradeSettings) -> list[Kind] | None:
    if settings.decode is None:
        return None
    return [kind for ids in _ids(step, one) for kind in token_kinds(ids, settings.decode, settings.kinds)]


def _by_kind(kinds: Sequence[str] | None, ratios: Floats) -> dict[str, float]:
    totals: dict[str, float] = {}
    for kind, ratio in zip(kinds or (), ratios if kinds else (), strict=True):
        totals[kind] = totals.get(kind, 0.0) + float(ratio)
    return totals


def _listed(step: Step, one: Prepared, tokens: Mapping[str, StepTokens]) -> dict[str, Any]:
    """Single tokens as lists: ids, kinds, log-probs under all models, KL."""
    first = next(iter(tokens.values()))
    return {
        "id": [token for ids in _ids(step, one) for token in ids],
        "kind": first.kinds and list(first.kinds),
        "policy_logprob": first.policy.tolist(),
        "reference_logprob": {name: of.reference.tolist() for name, of in tokens.items()},
        "kl": {name: None if of.kl is None else of.kl.tolist() for name, of in tokens.items()},
    }

"""The guard's rule: which calls cannot be undone, and the grade under which one is held.

Fitted on labelled runs: of right calls in fresh scenarios at most the stated share is held. What it
catches of wrong ones is not promised, only measured.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import numpy as np

from strop.errors import InputError
from strop.grader.grade import Graded, StepGrade
from strop.grader.labels import Label
from strop.grader.promise import promise
from strop.stats.conformal import Threshold, lower_threshold
from strop.stats.intervals import RESAMPLES, Estimate, cluster_mean

SCHEMA = 1
Score = Literal["sum", "mean"]
SCORES: tuple[Score, ...] = get_args(Score)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A graded step that called irreversible `tools`; `score` of the step. `right` None: not known."""

    trajectory_id: str
    scenario_id: str
    step: int
    tools: tuple[str, ...]
    score: float
    right: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A step that calls one of `tools` is held where its `score` falls under the threshold's value.

    `score` "sum" over the step's tokens of β · (log π − log π_ref), or their "mean". `beta` is that of the
    grades it was fitted on.
    """

    tools: tuple[str, ...]
    threshold: Threshold
    score: Score = "sum"
    beta: float = 1.0

    def low(self, value: float) -> bool:
        """Whether a step of this score is held."""
        return value < self.threshold.value

    def to_json(self) -> dict[str, Any]:
        """The rule as the object of its file; a threshold that holds nothing is null."""
        limit = asdict(self.threshold)
        limit["value"] = limit["value"] if math.isfinite(limit["value"]) else None
        return {
            "schema": SCHEMA,
            "tools": list(self.tools),
            "score": self.score,
            "beta": self.beta,
            "threshold": limit,
        }


def from_json(fields: Mapping[str, Any]) -> Rule:
    """What `Rule.to_json` wrote. Raises InputError for another schema and what is missing or wrong."""
    if fields.get("schema") != SCHEMA:
        raise InputError(f"guard of schema {fields.get('schema')!r}: this strop reads {SCHEMA}; fit it again")
    try:
        limit = dict(fields["threshold"])
        limit["value"] = -math.inf if limit["value"] is None else float(limit["value"])
        rule = Rule(
            tools=tuple(map(str, fields["tools"])),
            threshold=Threshold(**limit),
            score=fields["score"],
            beta=float(fields["beta"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"guard: {error}; fit it again") from error
    if rule.score not in SCORES or not rule.tools:
        raise InputError(f"guard: score {rule.score!r} of tools {list(rule.tools)}; fit it again")
    return rule


def step_score(step: StepGrade, how: Score) -> float:
    """The number of a step that is held against the threshold."""
    return step.grade if how == "sum" else step.mean


def calls(
    graded: Sequence[Graded],
    labels: Mapping[str, Label],
    tools: Sequence[str],
    *,
    score: Score = "sum",
    success: float = 1.0,
) -> tuple[list[Call], dict[str, int]]:
    """Every graded step that called one of `tools`, and how many runs were left out, by reason.

    Right: the run went wrong later or never. Wrong: it is the run's first wrong step. Neither is known of a
    call after the first wrong step, and in a failed run whose first wrong step nobody knows.
    """
    found: list[Call] = []
    lost: Counter[str] = Counter()
    for one in graded:
        label = labels.get(one.trajectory_id)
        if not one.steps or label is None or label.calls is None:
            lost["ungraded" if not one.steps else "no messages"] += 1
            continue
        for step in one.steps:
            named = label.calls[step.index] if step.index < len(label.calls) else ()
            if irreversible := tuple(tool for tool in named if tool in tools):
                found.append(
                    Call(
                        trajectory_id=one.trajectory_id,
                        scenario_id=one.scenario_id,
                        step=step.index,
                        tools=irreversible,
                        score=step_score(step, score),
                        right=_right(one, step.index, success),
                    )
                )
    return found, dict(lost)


def fit(
    found: Sequence[Call], tools: Sequence[str], rate: float, *, score: Score = "sum", beta: float = 1.0
) -> Rule:
    """The rule that holds at most `rate` of right calls of fresh scenarios (see `lower_threshold`). Raises
    InputError where no right call is among them."""
    right = [call for call in found if call.right]
    if not right:
        raise InputError(f"no call of {', '.join(tools)} is known to be right; give more labelled runs")
    limit = lower_threshold([c.score for c in right], [c.scenario_id for c in right], rate)
    return Rule(tools=tuple(tools), threshold=limit, score=score, beta=beta)


def out_of_fold(found: Sequence[Call], rate: float, rng: np.random.Generator) -> dict[str, Any]:
    """What such a rule holds of right and of wrong calls of other scenarios than it was fitted on."""
    known = [call for call in found if call.right is not None]
    scores, right = np.array([c.score for c in known]), np.array([bool(c.right) for c in known], dtype=bool)
    return promise(scores, right, [c.scenario_id for c in known], rate, rng)


def held(
    found: Sequence[Call], rule: Rule, rng: np.random.Generator, resamples: int = RESAMPLES
) -> dict[str, Any]:
    """What a rule holds of fresh calls: `right_held` against the promise, `wrong_held` against `blind`, the
    share that as many holds at random would catch. `kept`: the interval of `right_held` does not lie above
    the promised rate; `covers`: it holds that rate. Intervals resample scenarios."""
    known = [call for call in found if call.right is not None]

    def share(some: Sequence[Call]) -> Estimate:
        values = [float(rule.low(c.score)) for c in some]
        return cluster_mean(values, [c.scenario_id for c in some], rng, resamples)

    right, rate = share([c for c in known if c.right]), rule.threshold.rate
    return {
        "nominal": rate,
        "right_held": right.to_json(),
        "kept": None if right.low is None else right.low <= rate,
        "covers": None if right.low is None or right.high is None else right.low <= rate <= right.high,
        "wrong_held": share([c for c in known if not c.right]).to_json(),
        "blind": share(known).to_json(),
        "unknown": len(found) - len(known),
    }


def _right(graded: Graded, step: int, success: float) -> bool | None:
    first = graded.first_wrong_step
    if first is None:
        return True if graded.truth is not None and graded.truth >= success else None
    return None if step > first else step < first

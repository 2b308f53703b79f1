"""One number a trajectory from its steps' readings: which tokens, added up how, against which reference."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from strop.errors import InputError
from strop.grader.grade import Graded, StepGrade
from strop.grader.ratio import AGGREGATORS, Aggregator, Reading, trajectory_grade
from strop.grader.step_readings import WHOLE, SpanReading, aggregates


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """`token` adds up a step's tokens, `step` the steps. The default is the theory's score of an attempt.

    `centred` takes the KL off every token, and is of the aggregate-of-ratios only; `span` is "all" or a
    kind of token; `reference` None is the first.
    """

    token: Aggregator = "sum"
    step: Aggregator = "sum"
    reading: Reading = "aggregate-of-ratios"
    centred: bool = False
    span: str = WHOLE
    reference: str | None = None


def step_score(step: StepGrade, recipe: Recipe) -> float | None:
    """The step's number in nats; None where it has no token of the span, or no KL is known.

    Raises InputError for a step that holds no readings against that reference, and for a centred
    difference-of-aggregates, which does not exist.
    """
    name = recipe.reference or next(iter(step.readings), "a reference")
    if name not in step.readings:
        raise InputError(f"step {step.index} holds no readings against {name}; grade again")
    if recipe.centred and recipe.reading == "difference-of-aggregates":
        raise InputError("centred is of single tokens' ratios; it has no difference-of-aggregates")
    found = step.readings[name].get(recipe.span)
    return None if found is None else _value(found, recipe)


def trajectory_score(graded: Graded, recipe: Recipe) -> float | None:
    """β times the steps' numbers added up; None where no step has one."""
    values = [step_score(step, recipe) for step in graded.steps]
    known = [value for value in values if value is not None]
    return graded.beta * trajectory_grade(known, recipe.step) if known else None


def grid(graded: Graded, reference: str) -> dict[str, Any]:
    """Every trajectory score against one reference: reading, then token aggregator, then step aggregator.

    None under a token aggregator where no step has a number, as without KL none is centred.
    """
    readings: list[tuple[str, Reading, bool]] = [
        ("aggregate-of-ratios", "aggregate-of-ratios", False),
        ("difference-of-aggregates", "difference-of-aggregates", False),
        ("centred", "aggregate-of-ratios", True),
    ]

    def scores(token: Aggregator, reading: Reading, centred: bool) -> dict[str, float] | None:
        recipe = Recipe(token=token, reading=reading, centred=centred, reference=reference)
        known = [v for v in (step_score(step, recipe) for step in graded.steps) if v is not None]
        if not known:
            return None
        found = aggregates(np.array(known))
        return {step: graded.beta * found.by(step) for step in AGGREGATORS}

    return {
        name: {token: scores(token, reading, centred) for token in AGGREGATORS}
        for name, reading, centred in readings
    }


def _value(found: SpanReading, recipe: Recipe) -> float | None:
    if recipe.reading == "difference-of-aggregates":
        return found.difference(recipe.token)
    if recipe.centred:
        return None if found.centred is None else found.centred.by(recipe.token)
    return found.ratio.by(recipe.token)

"""Readings of the grades one might tune: by token, span and step, centred or not. The default is first."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from strop.grader.attribute import sharpest_drop
from strop.grader.baselines import RunScore, StepScore, each, total
from strop.grader.grade import Graded, StepGrade
from strop.grader.ratio import AGGREGATORS, Aggregator, Floats, trajectory_grade
from strop.grader.step_readings import WHOLE, SpanReading

ReadStep = Callable[[StepGrade], float]

SPLIT: tuple[Aggregator, ...] = ("min", "max", "bottom10")
"""Aggregators for which the difference of aggregates is not the aggregate of ratios."""


def step_values(graded: Sequence[Graded]) -> dict[str, ReadStep]:
    """One number a step, by name, the sum over its tokens first; all against the first reference.

    The token mean; where the grades hold their readings the other aggregates, the differences of aggregates
    where those differ, and where KL is known the centred ones; and the sum over each kind of token that
    these runs have, 0 in a step without it. A value that some step lacks is left out.
    """
    steps = [s for g in graded for s in g.steps]
    values: dict[str, ReadStep] = {"sum": lambda s: s.grade, "mean": lambda s: s.mean}
    if steps and all(s.readings for s in steps):
        values |= {how: partial(_ratio, how) for how in AGGREGATORS[2:]}
        values |= {f"difference of {how}": partial(_difference, how) for how in SPLIT}
        if all(_first(s)[WHOLE].centred for s in steps):
            values |= {f"centred {how}": partial(_centred, how) for how in AGGREGATORS}
    kinds = sorted({kind for s in steps for kind in s.spans})
    return values | {kind: partial(_span, kind) for kind in kinds}


def run_readings(graded: Sequence[Graded]) -> dict[str, RunScore]:
    """Every step value under every aggregator over steps, `sum over sum` first."""
    return {
        f"{how} over {name}": partial(_run, read, how)
        for name, read in step_values(graded).items()
        for how in AGGREGATORS
    }


def step_readings(graded: Sequence[Graded]) -> dict[str, StepScore]:
    """Every step value under every rule that names a step, the lowest sum first."""
    return {
        f"{rule} of {name}": partial(_named, read, apply)
        for name, read in step_values(graded).items()
        for rule, apply in _RULES.items()
    }


def centred_runs(graded: Sequence[Graded]) -> dict[str, RunScore]:
    """The sum of centred grades, where every graded step has them; else nothing."""
    read = step_values(graded).get("centred sum")
    return {} if read is None else {"progress advantage, centred (sum)": total(read)}


def centred_steps(graded: Sequence[Graded]) -> dict[str, StepScore]:
    """The lowest centred step, where every graded step has one; else nothing."""
    read = step_values(graded).get("centred sum")
    return {} if read is None else {"lowest step, centred": each(read)}


_RULES: Mapping[str, Callable[[Floats], Floats]] = {
    "lowest": lambda v: v,
    "lowest cumulative": np.cumsum,
    "sharpest drop": sharpest_drop,
}


def _first(step: StepGrade) -> Mapping[str, SpanReading]:
    return next(iter(step.readings.values()))


def _ratio(how: Aggregator, step: StepGrade) -> float:
    return _first(step)[WHOLE].ratio.by(how)


def _difference(how: Aggregator, step: StepGrade) -> float:
    return _first(step)[WHOLE].difference(how)


def _centred(how: Aggregator, step: StepGrade) -> float:
    found = _first(step)[WHOLE].centred
    assert found is not None, "asked for only where every step has it"
    return found.by(how)


def _span(kind: str, step: StepGrade) -> float:
    return float(step.spans.get(kind, 0.0))


def _run(read: ReadStep, how: Aggregator, graded: Graded) -> float:
    return trajectory_grade([read(s) for s in graded.steps], how)


def _named(read: ReadStep, apply: Callable[[Floats], Floats], graded: Graded) -> Floats:
    return apply(each(read)(graded))

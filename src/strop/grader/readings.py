"""Readings of the grades one might tune: over tokens, spans and steps. The default is always the first."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from strop.grader.attribute import sharpest_drop
from strop.grader.baselines import RunScore, StepScore, each
from strop.grader.grade import Graded, StepGrade
from strop.grader.ratio import AGGREGATORS, Aggregator, Floats, trajectory_grade

ReadStep = Callable[[StepGrade], float]


def step_values(graded: Sequence[Graded]) -> dict[str, ReadStep]:
    """One number a step, by name: the sum over its tokens, their mean, and the sum over one kind of token,
    for each kind that these runs have (0 in a step without it)."""
    kinds = sorted({kind for g in graded for s in g.steps for kind in s.spans})
    spans: dict[str, ReadStep] = {kind: _span(kind) for kind in kinds}
    return {"sum": lambda s: s.grade, "mean": lambda s: s.mean, **spans}


def run_readings(graded: Sequence[Graded]) -> dict[str, RunScore]:
    """Every step value under every aggregator over steps, `sum over sum` first."""
    return {
        f"{how} over {name}": _run(read, how)
        for name, read in step_values(graded).items()
        for how in AGGREGATORS
    }


def step_readings(graded: Sequence[Graded]) -> dict[str, StepScore]:
    """Every step value under every rule that names a step, the lowest sum first."""
    return {
        f"{rule} of {name}": _named(read, apply)
        for name, read in step_values(graded).items()
        for rule, apply in _RULES.items()
    }


_RULES: Mapping[str, Callable[[Floats], Floats]] = {
    "lowest": lambda v: v,
    "lowest cumulative": np.cumsum,
    "sharpest drop": sharpest_drop,
}


def _span(kind: str) -> ReadStep:
    return lambda s: float(s.spans.get(kind, 0.0))


def _run(read: ReadStep, how: Aggregator) -> RunScore:
    return lambda g: trajectory_grade([read(s) for s in g.steps], how)


def _named(read: ReadStep, apply: Callable[[Floats], Floats]) -> StepScore:
    values = each(read)
    return lambda g: apply(values(g))

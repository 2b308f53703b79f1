"""Which step broke it? Steps named by their grades against the first wrong one, beside blind rules."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from strop.grader.comparison import Comparison
from strop.grader.grade import Graded
from strop.grader.ratio import Floats
from strop.stats.intervals import RESAMPLES, Estimate, cluster_mean

DEFAULT = "lowest step"
Suspicion = Callable[[Graded], Floats]
"""One number a step, lower is more suspect; the lowest is named, and k that tie share the guess."""


def attribute(
    graded: Sequence[Graded], rng: np.random.Generator, *, success: float = 1.0, resamples: int = RESAMPLES
) -> Comparison:
    """Hit rate of each rule over failed trajectories whose first wrong step is known.

    Rules: the lowest step grade (the default), the lowest cumulative sum, the sharpest drop from one
    step to the next (the three of the Progress Advantage code; with a single step all name it).
    Nulls: a uniform guess, the first step, the last, the longest in tokens. Ties share the guess, so
    k tied steps earn 1/k where one is right. Steps are matched by `StepGrade.index`; intervals
    resample scenarios. Failed trajectories without grades or known first wrong step are excluded.
    """
    failed = [g for g in graded if g.truth is not None and g.truth < success]
    usable = [g for g in failed if g.steps and g.first_wrong_step is not None]
    clusters = [g.scenario_id for g in usable]
    rules = {name: _hits(usable, rule) for name, rule in _RULES.items()}
    nulls = {name: _hits(usable, rule) for name, rule in _NULLS.items()}

    def rate(hits: Floats) -> Estimate:
        return cluster_mean(hits, clusters, rng, resamples)

    return Comparison(
        measure="share of failed runs whose first wrong step was named",
        default=DEFAULT,
        results={name: rate(hits) for name, hits in rules.items()},
        nulls={name: rate(hits) for name, hits in nulls.items()},
        differences={name: rate(rules[DEFAULT] - hits) for name, hits in nulls.items()},
        excluded=_excluded(failed),
    )


def sharpest_drop(grades: Floats) -> Floats:
    """Change from the step before, [K]; the first step has none (+inf), unless it is the only one."""
    return np.concatenate([[np.inf if len(grades) > 1 else 0.0], np.diff(grades)])


def _grades(graded: Graded) -> Floats:
    return np.array([s.grade for s in graded.steps])


def _places(graded: Graded) -> Floats:
    return np.arange(len(graded.steps), dtype=np.float64)


_RULES: Mapping[str, Suspicion] = {
    DEFAULT: _grades,
    "lowest cumulative sum": lambda g: np.cumsum(_grades(g)),
    "sharpest drop": lambda g: sharpest_drop(_grades(g)),
}
_NULLS: Mapping[str, Suspicion] = {
    "uniform guess": lambda g: np.zeros(len(g.steps)),
    "first step": _places,
    "last step": lambda g: -_places(g),
    "longest step": lambda g: -np.array([float(s.n_tokens) for s in g.steps]),
}


def _hits(graded: Sequence[Graded], rule: Suspicion) -> Floats:
    return np.array([_hit(g, rule(g)) for g in graded], dtype=np.float64)


def _hit(graded: Graded, suspicion: Floats) -> float:
    named = [s.index for s, x in zip(graded.steps, suspicion, strict=True) if x == suspicion.min()]
    return (graded.first_wrong_step in named) / len(named)


def _excluded(failed: Sequence[Graded]) -> dict[str, int]:
    reasons = Counter(
        "ungraded" if not g.steps else "first wrong step unknown"
        for g in failed
        if not g.steps or g.first_wrong_step is None
    )
    return dict(reasons)

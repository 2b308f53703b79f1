"""Which step broke it? Steps named by their grades against the first wrong one, beside blind rules."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from strop.grader.baselines import GUESSES, StepScore, each, implicit_rewards, parted
from strop.grader.comparison import Comparison
from strop.grader.grade import Graded
from strop.grader.ratio import Floats
from strop.stats.intervals import RESAMPLES, Estimate, cluster_mean

DEFAULT = "lowest step"


def sharpest_drop(grades: Floats) -> Floats:
    """Change from the step before, [K]; the first step has none (+inf), unless it is the only one."""
    return np.concatenate([[np.inf if len(grades) > 1 else 0.0], np.diff(grades)])


_grades = each(lambda s: s.grade)
RULES: Mapping[str, StepScore] = {
    DEFAULT: _grades,
    "lowest cumulative sum": implicit_rewards,
    "sharpest drop": lambda g: sharpest_drop(_grades(g)),
}
MEAN_RULE: Mapping[str, StepScore] = {"lowest step per token": each(lambda s: s.mean)}


def attribute(
    graded: Sequence[Graded],
    rng: np.random.Generator,
    *,
    success: float = 1.0,
    resamples: int = RESAMPLES,
    other: Mapping[str, StepScore] | None = None,
    nulls: Mapping[str, StepScore] = GUESSES,
) -> Comparison:
    """Hit rate of each rule over failed trajectories whose first wrong step is known.

    Rules: the lowest step grade (the default), the lowest cumulative sum, the sharpest drop from one
    step to the next (the three of the Progress Advantage code; with a single step all name it), and
    `other`. Nulls name the step with the lowest of their scores; those that the grades cannot give
    say so. Ties share the guess, so k tied steps earn 1/k where one is right. Steps are matched by
    `StepGrade.index`; intervals resample scenarios. Failed trajectories without grades or known first
    wrong step are excluded.
    """
    failed = [g for g in graded if g.truth is not None and g.truth < success]
    usable = attributable(graded, success)
    nulls, lacking = parted(nulls, usable)
    clusters = [g.scenario_id for g in usable]
    rules = {name: hits(usable, rule) for name, rule in {**RULES, **(other or {})}.items()}
    blind = {name: hits(usable, rule) for name, rule in nulls.items()}

    def rate(found: Floats) -> Estimate:
        return cluster_mean(found, clusters, rng, resamples)

    return Comparison(
        measure="share of failed runs whose first wrong step was named",
        default=DEFAULT,
        results={name: rate(found) for name, found in rules.items()},
        nulls={name: rate(found) for name, found in blind.items()},
        differences={name: rate(rules[DEFAULT] - found) for name, found in blind.items()},
        excluded=_excluded(failed),
    ).lacking(lacking)


def constants(
    graded: Sequence[Graded], rng: np.random.Generator, *, success: float = 1.0, resamples: int = RESAMPLES
) -> dict[str, Any]:
    """Hit rates of "always step k" for each k, and of the best k.

    `best_crossfitted` names in each scenario the k that was best in all others (the lowest on ties);
    `best_in_sample` chooses on what it is measured on, so it flatters itself; `difference` is the default
    rule less the cross-fitted constant. Step k is `StepGrade.index` k: a run without it is a miss.
    """
    usable = attributable(graded, success)
    clusters = [g.scenario_id for g in usable]
    names = sorted({s.index for g in usable for s in g.steps})
    table = np.array([[float(g.first_wrong_step == k) for k in names] for g in usable])
    table = table.reshape(len(usable), len(names))
    best = table.mean(axis=0) if len(usable) else np.zeros(len(names))
    scenarios = np.array(clusters, dtype=object)
    fitted = np.array(
        [row[np.argmax(table[scenarios != c].sum(axis=0))] for row, c in zip(table, clusters, strict=True)]
    )

    def rate(found: Floats) -> Estimate:
        return cluster_mean(found, clusters, rng, resamples)

    top = int(np.argmax(best)) if len(names) else None
    return {
        "always": {str(k): rate(table[:, i]).to_json() for i, k in enumerate(names)},
        "best_in_sample": {
            "step": names[top] if top is not None else None,
            "rate": rate(table[:, top] if top is not None else np.zeros(0)).to_json(),
        },
        "best_crossfitted": rate(fitted).to_json(),
        "difference": rate(hits(usable, _grades) - fitted).to_json(),
    }


def attributable(graded: Sequence[Graded], success: float) -> list[Graded]:
    """Failed runs with grades whose first wrong step is known."""
    return [
        g
        for g in graded
        if g.truth is not None and g.truth < success and g.steps and g.first_wrong_step is not None
    ]


def hits(graded: Sequence[Graded], rule: StepScore) -> Floats:
    """`hit` of each run, [n]."""
    return np.array([hit(g, rule(g)) for g in graded], dtype=np.float64)


def hit(graded: Graded, suspicion: Floats) -> float:
    """1 where the lowest of `suspicion` [K] is the first wrong step, 1/k where k tie with it, else 0."""
    named = [s.index for s, x in zip(graded.steps, suspicion, strict=True) if x == suspicion.min()]
    return (graded.first_wrong_step in named) / len(named)


def _excluded(failed: Sequence[Graded]) -> dict[str, int]:
    reasons = Counter(
        "ungraded" if not g.steps else "first wrong step unknown"
        for g in failed
        if not g.steps or g.first_wrong_step is None
    )
    return dict(reasons)

"""Will this run succeed? The grade's answer as an AUROC, beside what knows nothing of training."""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from strop.grader.baselines import SHORT, RunScore, parted, total
from strop.grader.comparison import Comparison, coin, over_coin
from strop.grader.grade import Graded
from strop.grader.ratio import Floats
from strop.stats.aurocs import resampled_aurocs
from strop.stats.intervals import RESAMPLES

DEFAULT = "progress advantage (sum)"
RANDOM = "random"
OTHER: Mapping[str, RunScore] = {
    "progress advantage (mean step)": lambda g: float(np.mean([s.grade for s in g.steps]))
}


def predict(
    graded: Sequence[Graded],
    rng: np.random.Generator,
    *,
    success: float = 1.0,
    resamples: int = RESAMPLES,
    other: Mapping[str, RunScore] = OTHER,
    nulls: Mapping[str, RunScore] = SHORT,
) -> Comparison:
    """AUROC of truth ≥ `success` by the sum of step grades, intervals clustered by scenario.

    `other` scores stand among the results and are not claimed; `nulls`, and a random draw, are what has
    to be beaten. Across scenarios the theory promises nothing, for the scenario's own value is not in
    the sum. Nulls that the grades cannot give say so. Trajectories without grades or truth
    are excluded and counted; one class only gives no number.
    """
    usable = [g for g in graded if g.steps and g.truth is not None]
    labels = successes(usable, success)
    ours = {DEFAULT: total(lambda s: s.grade), **other}
    nulls, lacking = parted(nulls, usable)
    scored = values(usable, {**ours, **nulls}) | {RANDOM: rng.random(len(usable))}
    aurocs = resampled_aurocs(labels, scored, [g.scenario_id for g in usable], rng, resamples)
    default = aurocs.estimate(DEFAULT)
    # A score that is the same for all has no resampling noise; its AUROC is 0.5 by definition.
    flat = {name for name in scored if len(set(scored[name])) == 1 and default.estimate is not None}
    against = [name for name in scored if name not in ours]
    return Comparison(
        measure="AUROC of success",
        default=DEFAULT,
        results={name: aurocs.estimate(name) for name in ours},
        nulls={name: coin(len(usable)) if name in flat else aurocs.estimate(name) for name in against},
        differences={
            name: over_coin(default) if name in flat else aurocs.difference(DEFAULT, name) for name in against
        },
        excluded=excluded(graded),
    ).lacking(lacking)


def successes(graded: Sequence[Graded], success: float) -> Floats:
    """1.0 where the truth reaches `success`, else 0.0, [n]."""
    return np.array([float(g.truth is not None and g.truth >= success) for g in graded])


def values(graded: Sequence[Graded], scores: Mapping[str, RunScore]) -> dict[str, Floats]:
    """Each score of each run, [n] by name."""
    return {name: np.array([score(g) for g in graded]) for name, score in scores.items()}


def excluded(graded: Sequence[Graded]) -> dict[str, int]:
    """How many runs cannot be used, by reason."""
    reasons = Counter(
        "ungraded" if not g.steps else "no truth" for g in graded if not g.steps or g.truth is None
    )
    return dict(reasons)

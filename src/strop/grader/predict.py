"""Will this run succeed? The grade's answer as an AUROC, beside what knows nothing of training."""

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from strop.grader.comparison import Comparison, coin, over_coin
from strop.grader.grade import Graded, StepGrade
from strop.grader.ratio import Floats
from strop.stats.aurocs import resampled_aurocs
from strop.stats.intervals import RESAMPLES

DEFAULT = "progress advantage (sum)"


def predict(
    graded: Sequence[Graded], rng: np.random.Generator, *, success: float = 1.0, resamples: int = RESAMPLES
) -> Comparison:
    """AUROC of truth ≥ `success` by the sum of step grades, intervals clustered by scenario.

    Nulls: length in tokens and in steps in both directions, a constant, a random draw, log-prob under
    policy and under reference alone (sums, as the grade), Self-Certainty and DeepConf (means over
    tokens, higher is more certain, as defined in arXiv 2502.18581 and 2508.15260). Across scenarios
    the theory promises nothing, for the scenario's own value is not in the sum. Trajectories without
    grades or truth are excluded and counted; one class only gives no number.
    """
    usable = [g for g in graded if g.steps and g.truth is not None]
    labels = np.array([float(g.truth is not None and g.truth >= success) for g in usable])
    ours, nulls = _own_scores(usable), _null_scores(usable, rng)
    aurocs = resampled_aurocs(labels, ours | nulls, [g.scenario_id for g in usable], rng, resamples)
    default = aurocs.estimate(DEFAULT)
    # A score that is the same for all has no resampling noise; its AUROC is 0.5 by definition.
    flat = {name for name, scores in nulls.items() if len(set(scores)) == 1 and default.estimate is not None}
    return Comparison(
        measure="AUROC of success",
        default=DEFAULT,
        results={name: aurocs.estimate(name) for name in ours},
        nulls={name: coin(len(usable)) if name in flat else aurocs.estimate(name) for name in nulls},
        differences={
            name: over_coin(default) if name in flat else aurocs.difference(DEFAULT, name) for name in nulls
        },
        excluded=_excluded(graded),
    )


def _own_scores(graded: Sequence[Graded]) -> dict[str, Floats]:
    sums = _sums(graded, lambda s: s.grade)
    steps = np.array([float(len(g.steps)) for g in graded])
    return {DEFAULT: sums, "progress advantage (mean step)": sums / steps}


def _null_scores(graded: Sequence[Graded], rng: np.random.Generator) -> dict[str, Floats]:
    tokens = _sums(graded, lambda s: s.n_tokens)
    steps = np.array([float(len(g.steps)) for g in graded])
    return {
        "fewer tokens": -tokens,
        "more tokens": tokens,
        "fewer steps": -steps,
        "more steps": steps,
        "constant": np.zeros(len(graded)),
        "random": rng.random(len(graded)),
        "policy log-prob": _sums(graded, lambda s: s.policy_logprob),
        "reference log-prob": _sums(graded, lambda s: s.reference_logprob),
        "Self-Certainty": _token_means(graded, lambda s: s.self_certainty),
        "DeepConf": _token_means(graded, lambda s: s.deepconf),
    }


def _sums(graded: Sequence[Graded], read: Callable[[StepGrade], float]) -> Floats:
    return np.array([float(sum(map(read, g.steps))) for g in graded])


def _token_means(graded: Sequence[Graded], read: Callable[[StepGrade], float]) -> Floats:
    tokens = _sums(graded, lambda s: s.n_tokens)
    return _sums(graded, lambda s: s.n_tokens * read(s)) / tokens


def _excluded(graded: Sequence[Graded]) -> dict[str, int]:
    reasons = Counter(
        "ungraded" if not g.steps else "no truth" for g in graded if not g.steps or g.truth is None
    )
    return dict(reasons)

"""What a conformal threshold on grades keeps and catches, each threshold fitted on other scenarios."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from strop.grader.folds import scenario_folds
from strop.grader.ratio import Floats
from strop.stats.conformal import lower_threshold
from strop.stats.intervals import RESAMPLES, Estimate, cluster_mean


def promise(
    scores: Floats,
    right: NDArray[np.bool_],
    scenarios: Sequence[str],
    rate: float,
    rng: np.random.Generator,
    resamples: int = RESAMPLES,
) -> dict[str, Any]:
    """A threshold under which at most `rate` of what is right in fresh scenarios falls.

    `threshold` on all data, None where they are too few; out of fold `right_held` and `wrong_caught`, the
    shares that fall under a threshold fitted on the other folds. A blind hold catches `rate` of either.
    """
    names = np.array(scenarios, dtype=object)
    whole = lower_threshold(scores[right], names[right].tolist(), rate)
    folds = scenario_folds(scenarios, rng)
    held = np.zeros(len(scores))
    for fold in np.unique(folds):
        fitted = right & (folds != fold)
        value = lower_threshold(scores[fitted], names[fitted].tolist(), rate).value
        held[folds == fold] = scores[folds == fold] < value

    def share(kind: NDArray[np.bool_]) -> Estimate:
        return cluster_mean(held[kind], names[kind].tolist(), rng, resamples)

    return {
        "nominal": rate,
        "threshold": whole.value if np.isfinite(whole.value) else None,
        "right_held": share(right).to_json(),
        "wrong_caught": share(~right).to_json(),
        "wrong_caught_blind": rate,
        "n_right": whole.n,
    }

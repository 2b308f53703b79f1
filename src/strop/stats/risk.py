"""Risk against coverage: what fails among the runs a score trusts most."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from strop.errors import InputError
from strop.stats.intervals import finite_array


def risks(scores: ArrayLike, failures: ArrayLike) -> NDArray[np.float64]:
    """Mean failure of the c runs with the highest scores, for c = 1 … n, [n]; runs that tie share alike.

    The last is the share of failures. A blind score has that everywhere.
    """
    values, wrong = finite_array(scores, "scores"), finite_array(failures, "failures")
    if len(values) != len(wrong):
        raise InputError(f"{len(values)} scores but {len(wrong)} failures; give one for each run")
    order = np.argsort(-values, kind="stable")
    _, inverse, counts = np.unique(-values[order], return_inverse=True, return_counts=True)
    shared = (np.bincount(inverse, weights=wrong[order]) / counts)[inverse] if len(values) else wrong
    result: NDArray[np.float64] = np.cumsum(shared) / np.arange(1, len(values) + 1)
    return result


def area(scores: ArrayLike, failures: ArrayLike) -> float | None:
    """Area under the risk–coverage curve, the mean of `risks` (Geifman and El-Yaniv 2017); low is good.

    Chance level is the share of failures. None for no run.
    """
    curve = risks(scores, failures)
    return float(curve.mean()) if len(curve) else None


def rejection_ratio(scores: ArrayLike, failures: ArrayLike) -> float | None:
    """(chance area − area) / (chance area − the oracle's area): 1 orders all rightly, 0 is blind.

    The prediction–rejection ratio (Malinin et al. 2020). None where all runs end alike.
    """
    wrong = finite_array(failures, "failures")
    ours, best = area(scores, wrong), area(-wrong, wrong)
    if ours is None or best is None or float(np.ptp(wrong)) == 0:
        return None
    chance = float(wrong.mean())
    return (chance - ours) / (chance - best)

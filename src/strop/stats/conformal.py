"""Split conformal thresholds: a bound on how often what is right is held, for any finite sample."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import beta

from strop.errors import InputError
from strop.stats.intervals import LEVEL, cluster_numbers, finite_array


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """What scores below `value` means: held. `value` −inf where so few data can promise nothing.

    `rate` is the promised share of right ones that are held, at most, over fresh data and the draw of
    the calibration data together. For this one draw the share is itself uncertain: with one score a
    cluster and no ties it lies between `low` and `high` (Beta quantiles) at 95 %. `n`, `clusters`:
    what it rests on.
    """

    value: float
    rate: float
    low: float
    high: float
    n: int
    clusters: int


def lower_threshold(scores: ArrayLike, clusters: Sequence[Hashable], rate: float) -> Threshold:
    """The highest τ with P(score < τ) ≤ rate for one score drawn from a fresh cluster.

    `scores` [n] of right ones only. With K clusters, each of mass 1/(K+1) shared by its scores, τ is
    the (1 − rate) quantile of the negated scores with the mass left over at infinity: the hierarchical
    conformal bound of Lee, Barber and Willett (arXiv 2306.06342), which needs only that clusters are
    exchangeable. With one score a cluster it is the ⌊rate · (n+1)⌋-th lowest score (split conformal,
    Vovk et al. 2005); below 1/rate − 1 clusters that is none, and nothing is held. Raises InputError
    unless 0 < rate < 1.
    """
    if not 0 < rate < 1:
        raise InputError(f"false-hold rate {rate}; give a share between 0 and 1, such as 0.05")
    values = finite_array(scores, "scores")
    numbers = cluster_numbers(clusters)
    if len(numbers) != len(values):
        raise InputError(f"{len(values)} scores but {len(numbers)} clusters; give one for each score")
    k = int(numbers.max(initial=-1)) + 1
    held = int(np.floor(rate * (k + 1) + 1e-9))
    low, high = _range(held, k)
    value = _lowest_with(values, numbers, k, rate) if held else -np.inf
    return Threshold(value=value, rate=rate, low=low, high=high, n=len(values), clusters=k)


def _lowest_with(
    values: np.ndarray[tuple[int], np.dtype[np.float64]],
    numbers: np.ndarray[tuple[int], np.dtype[np.int64]],
    k: int,
    rate: float,
) -> float:
    """The highest score whose strictly lower scores carry a mass of at most `rate`, with its own cluster's
    mass counted against it: mass of all scores at or above it is at least 1 − rate."""
    mass = 1 / (np.bincount(numbers, minlength=k)[numbers] * (k + 1))
    order = np.argsort(-values, kind="stable")
    # −τ is the smallest −s whose mass at or below it reaches 1 − rate.
    reached = np.cumsum(mass[order]) >= 1 - rate - 1e-9
    return float(values[order][np.argmax(reached)]) if reached.any() else -np.inf


def _range(held: int, k: int) -> tuple[float, float]:
    if held == 0:
        return 0.0, 0.0
    tail = (1 - LEVEL) / 2
    return float(beta.ppf(tail, held, k + 1 - held)), float(beta.ppf(1 - tail, held, k + 1 - held))

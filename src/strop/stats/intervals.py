"""Estimates with intervals: Wilson for proportions, cluster bootstrap for the rest."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from strop.errors import InputError

RESAMPLES = 2000
LEVEL = 0.95
ALIKE = 1e-12
"""Statistics that lie closer together than this differ by rounding only."""

Index = NDArray[np.int64]
Statistic = Callable[[Index], float | None]
"""A number computed from the observations at these indices, or None where they do not define it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A reported number: the estimate, its interval, and what it rests on.

    `low` and `high` bound the interval at the level named in `method`. `n` counts observations,
    `excluded` those that were left out, `clusters` the independent units that were resampled.
    Where there is too little data `estimate`, `low` and `high` are all None and `method` says why.
    """

    estimate: float | None
    low: float | None
    high: float | None
    n: int
    method: str
    excluded: int = 0
    clusters: int | None = None
    seed: int | None = None

    def to_json(self) -> dict[str, Any]:
        """The estimate as a JSON object; `clusters` and `seed` only where there are any."""
        fields: dict[str, Any] = {
            "estimate": self.estimate,
            "low": self.low,
            "high": self.high,
            "n": self.n,
            "method": self.method,
            "excluded": self.excluded,
        }
        optional = {"clusters": self.clusters, "seed": self.seed}
        return fields | {name: value for name, value in optional.items() if value is not None}


def undefined(why: str, *, n: int = 0, clusters: int | None = None, excluded: int = 0) -> Estimate:
    """No number, and the reason why."""
    return Estimate(
        estimate=None, low=None, high=None, n=n, method=f"none: {why}", excluded=excluded, clusters=clusters
    )


def wilson(successes: int, n: int, level: float = LEVEL) -> Estimate:
    """A proportion with Wilson's score interval (1927), for n independent trials.

    n = 0 gives no number. Raises InputError unless 0 <= successes <= n and 0 < level < 1.
    """
    if not 0 <= successes <= n:
        raise InputError(f"{successes} successes of {n}; give a count between 0 and n")
    if n == 0:
        return undefined("no observations")
    low, high = wilson_bounds(successes / n, n, level)
    return Estimate(estimate=successes / n, low=low, high=high, n=n, method=f"Wilson {level:.0%}")


def wilson_bounds(share: float, n: int, level: float = LEVEL) -> tuple[float, float]:
    """Wilson's bounds for a share of n trials, n >= 1, each inside [0, 1]."""
    z = NormalDist().inv_cdf(0.5 + check_level(level) / 2)
    centre = share + z * z / (2 * n)
    half = z * sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    low = 0.0 if share == 0 else (centre - half) / scale
    high = 1.0 if share == 1 else (centre + half) / scale
    return low, high


def cluster_mean(
    values: ArrayLike,
    clusters: Sequence[Hashable],
    rng: np.random.Generator,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
) -> Estimate:
    """Mean of values [n] with a percentile bootstrap that resamples whole clusters (scenarios).

    Clusters that do not differ: see `from_resamples`. No value, or one cluster: no number. Raises
    InputError for a value that is not finite.
    """
    numbers = finite_array(values, "values")
    sums, counts = cluster_sums(numbers, clusters)
    return cluster_ratio(sums, counts, rng, resamples, level)


def cluster_ratio(
    numerators: ArrayLike,
    denominators: ArrayLike,
    rng: np.random.Generator,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
) -> Estimate:
    """Ratio of sums, one numerator and one denominator >= 0 a cluster [K], with a percentile bootstrap.

    `n` is the sum of the denominators. Clusters whose denominator is 0 say nothing and are dropped.
    Fewer than two clusters left: no number. Clusters that do not differ: see `from_resamples`.
    """
    top, bottom = finite_array(numerators, "numerators"), finite_array(denominators, "denominators")
    top, bottom = top[bottom > 0], bottom[bottom > 0]
    n, k = round(bottom.sum()), len(bottom)
    if k < 2:
        return too_few(n, k)
    drawn = rng.integers(k, size=(resamples, k))
    samples = top[drawn].sum(axis=1) / bottom[drawn].sum(axis=1)
    return from_resamples(top.sum() / bottom.sum(), samples, n=n, clusters=k, level=level)


def cluster_bootstrap(
    clusters: Sequence[Hashable],
    statistic: Statistic,
    rng: np.random.Generator,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
) -> Estimate:
    """Any statistic of n observations with a percentile bootstrap over their clusters.

    `clusters` names the cluster of each observation; `statistic` gets the indices of a resample, an
    observation once for each time that its cluster was drawn. Resamples that do not define it are
    left out and counted in `method`; where that is half of them or more there is no number.
    """
    labels = cluster_numbers(clusters)
    n, k = len(labels), int(labels.max(initial=-1)) + 1
    point = statistic(np.arange(n)) if n else None
    if point is None:
        return undefined("the data do not define it", n=n, clusters=k)
    if k < 2:
        return too_few(n, k)
    members = np.split(np.argsort(labels, kind="stable"), np.cumsum(np.bincount(labels))[:-1])
    drawn = rng.integers(k, size=(resamples, k))
    samples = [statistic(np.concatenate([members[c] for c in row])) for row in drawn]
    defined = np.array([value for value in samples if value is not None], dtype=np.float64)
    if 2 * len(defined) <= resamples:
        return undefined("most resamples do not define it", n=n, clusters=k)
    return from_resamples(point, defined, n=n, clusters=k, level=level, lost=resamples - len(defined))


def from_resamples(
    point: float, samples: NDArray[np.float64], *, n: int, clusters: int, level: float = LEVEL, lost: int = 0
) -> Estimate:
    """The percentile interval of resampled statistics around `point`.

    Where no resample differs from another it would have no width: a share, in [0, 1], then gets
    Wilson's interval with the clusters as n, the widest that its mean allows; anything else no number.
    """
    tail = (1 - check_level(level)) / 2
    method = f"cluster bootstrap {level:.0%}, {len(samples)} resamples"
    if lost:
        method += f", {lost} undefined"
    if np.ptp(samples) > ALIKE:
        low, high = np.quantile(samples, [tail, 1 - tail])
    elif 0 <= point <= 1:
        low, high = wilson_bounds(point, clusters, level)
        method = f"Wilson {level:.0%} over clusters, which do not differ"
    else:
        return undefined("clusters do not differ", n=n, clusters=clusters)
    return Estimate(
        estimate=float(point), low=float(low), high=float(high), n=n, method=method, clusters=clusters
    )


def too_few(n: int, clusters: int) -> Estimate:
    """No number, for want of two clusters."""
    why = "no observations" if n == 0 else "one cluster only, two are needed"
    return undefined(why, n=n, clusters=clusters)


def cluster_numbers(clusters: Sequence[Hashable]) -> NDArray[np.int64]:
    """Clusters as numbers from 0 in order of first appearance, [n]."""
    first: dict[Hashable, int] = {}
    return np.array([first.setdefault(name, len(first)) for name in clusters], dtype=np.int64)


def cluster_sums(
    values: NDArray[np.float64], clusters: Sequence[Hashable]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Sums and counts by cluster, each [K]. Raises InputError unless one cluster a value."""
    if len(values) != len(clusters):
        raise InputError(f"{len(values)} values but {len(clusters)} clusters; give one for each value")
    labels = cluster_numbers(clusters)
    k = int(labels.max(initial=-1)) + 1
    sums = np.bincount(labels, weights=values, minlength=k).astype(np.float64)
    return sums, np.bincount(labels, minlength=k).astype(np.float64)


def finite_array(values: ArrayLike, name: str) -> NDArray[np.float64]:
    """Values as float64 [n]. Raises InputError for a shape other than one axis or a non-finite value."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1:
        raise InputError(f"{name}: shape {array.shape}; give one number an observation")
    if not np.isfinite(array).all():
        raise InputError(f"{name}: a value is not finite; exclude it and count it as excluded")
    return array


def check_level(level: float) -> float:
    """The confidence level. Raises InputError outside (0, 1)."""
    if not 0 < level < 1:
        raise InputError(f"confidence level {level}; give a share between 0 and 1, such as 0.95")
    return level

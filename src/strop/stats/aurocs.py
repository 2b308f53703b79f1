"""AUROCs of several scores over the same observations, resampled together, so that they may be compared."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from strop.errors import InputError
from strop.stats.detection import auroc
from strop.stats.intervals import (
    RESAMPLES,
    Estimate,
    cluster_numbers,
    finite_array,
    from_resamples,
    too_few,
    undefined,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Aurocs:
    """AUROC of each score by name: `points`, None with one class only, and `samples` [B], one for each
    resample of whole clusters, nan where that holds one class only. All scores share the resamples."""

    points: Mapping[str, float | None]
    samples: Mapping[str, NDArray[np.float64]]
    n: int
    clusters: int

    def estimate(self, name: str) -> Estimate:
        """The AUROC of one score with its percentile interval, or the reason why there is none."""
        return self._estimate(self.points[name], self.samples[name])

    def difference(self, name: str, other: str) -> Estimate:
        """AUROC of `name` less that of `other`, in [-1, 1], resampled in pairs."""
        point, null = self.points[name], self.points[other]
        gap = None if point is None or null is None else point - null
        return self._estimate(gap, self.samples[name] - self.samples[other])

    def _estimate(self, point: float | None, samples: NDArray[np.float64]) -> Estimate:
        if self.clusters < 2:
            return too_few(self.n, self.clusters)
        if point is None:
            return undefined("one class only", n=self.n, clusters=self.clusters)
        defined = samples[np.isfinite(samples)]
        if 2 * len(defined) <= len(samples):
            return undefined("most resamples hold one class only", n=self.n, clusters=self.clusters)
        lost = len(samples) - len(defined)
        return from_resamples(point, defined, n=self.n, clusters=self.clusters, lost=lost)


def resampled_aurocs(
    labels: ArrayLike,
    scores: Mapping[str, ArrayLike],
    clusters: Sequence[Hashable],
    rng: np.random.Generator,
    resamples: int = RESAMPLES,
) -> Aurocs:
    """AUROCs of `scores`, each [n], for `labels` 0 or 1 [n], over resamples of whole clusters.

    Takes O(resamples · n) time and memory a score. Raises InputError for lengths that differ.
    """
    truth = finite_array(labels, "labels")
    values = {name: finite_array(score, name) for name, score in scores.items()}
    numbers = cluster_numbers(clusters)
    if any(len(score) != len(truth) for score in values.values()) or len(numbers) != len(truth):
        raise InputError("labels, scores and clusters differ in length; give one of each an observation")
    k = int(numbers.max(initial=-1)) + 1
    drawn = rng.multinomial(k, np.full(k, 1 / k), size=resamples) if k else np.zeros((resamples, 0))
    weights = drawn[:, numbers].astype(np.float64)
    return Aurocs(
        points={name: auroc(truth, score) for name, score in values.items()},
        samples={name: weighted_auroc(weights, truth, score) for name, score in values.items()},
        n=len(truth),
        clusters=k,
    )


def weighted_auroc(
    weights: NDArray[np.float64], labels: NDArray[np.float64], scores: NDArray[np.float64]
) -> NDArray[np.float64]:
    """AUROC under each row of `weights` [B, n], as if observation i stood there weights[b, i] times.

    Σ over tied groups of positives there · (negatives below + half the negatives there), over the
    number of pairs. nan where a class has no weight. No observation gives nan.
    """
    if not len(scores):
        return np.full(len(weights), np.nan)
    order = np.argsort(scores, kind="stable")
    starts = np.flatnonzero(np.append(True, np.diff(scores[order]) != 0))
    sorted_weights, positive = weights[:, order], labels[order]
    positives = np.add.reduceat(sorted_weights * positive, starts, axis=1)
    negatives = np.add.reduceat(sorted_weights * (1 - positive), starts, axis=1)
    below = np.cumsum(negatives, axis=1) - negatives
    pairs = positives.sum(axis=1) * negatives.sum(axis=1)
    won = (positives * (below + negatives / 2)).sum(axis=1)
    result: NDArray[np.float64] = np.divide(won, pairs, out=np.full(len(weights), np.nan), where=pairs > 0)
    return result

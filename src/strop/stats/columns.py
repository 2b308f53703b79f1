"""Means and ratios of many columns over the same clusters, resampled together: differences are paired."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from strop.errors import InputError
from strop.stats.intervals import ALIKE, RESAMPLES, Estimate, from_resamples, too_few, undefined


@dataclass(frozen=True, slots=True)
class Resampled:
    """`times` [B, K]: how often each of K clusters stands in each resample."""

    times: NDArray[np.float64]

    @property
    def clusters(self) -> int:
        return int(self.times.shape[1])

    def mean(self, sums: ArrayLike, counts: ArrayLike) -> Estimate:
        """Σ sums / Σ counts over clusters, both [K]; `n` is the sum of the counts."""
        top, bottom = self._checked(sums), self._checked(counts)
        n = round(bottom.sum())
        if self.clusters < 2 or n == 0:
            return too_few(n, self.clusters)
        return self._ratio(top, bottom, n)

    def share(self, part: ArrayLike, whole: ArrayLike) -> Estimate:
        """Σ part / Σ whole over clusters, both [K], such as a gain over the gain there was to be had.

        `n` counts the clusters. Resamples in which there is nothing to be had are left out.
        """
        top, bottom = self._checked(part), self._checked(whole)
        if self.clusters < 2:
            return too_few(self.clusters, self.clusters)
        if bottom.sum() <= ALIKE:
            return undefined("there is nothing to be had", n=self.clusters, clusters=self.clusters)
        return self._ratio(top, bottom, self.clusters)

    def _ratio(self, top: NDArray[np.float64], bottom: NDArray[np.float64], n: int) -> Estimate:
        below = self.times @ bottom
        kept = below > ALIKE
        if 2 * kept.sum() <= len(below):
            return undefined("most resamples do not define it", n=n, clusters=self.clusters)
        samples = (self.times @ top)[kept] / below[kept]
        point = float(top.sum() / bottom.sum())
        lost = int(len(below) - kept.sum())
        return from_resamples(point, samples, n=n, clusters=self.clusters, lost=lost)

    def _checked(self, values: ArrayLike) -> NDArray[np.float64]:
        array = np.asarray(values, dtype=np.float64)
        if array.shape != (self.clusters,):
            raise InputError(f"{array.shape} values for {self.clusters} clusters; give one for each")
        return array


def resampled(clusters: int, rng: np.random.Generator, resamples: int = RESAMPLES) -> Resampled:
    """The bootstrap over so many clusters, drawn once for all that is to be compared."""
    if clusters == 0:
        return Resampled(np.zeros((resamples, 0)))
    drawn = rng.multinomial(clusters, np.full(clusters, 1 / clusters), size=resamples)
    return Resampled(drawn.astype(np.float64))

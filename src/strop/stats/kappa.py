"""Agreement of two labellings beyond what their label frequencies alone would give."""

from collections import Counter
from collections.abc import Hashable, Sequence

import numpy as np

from strop.errors import InputError
from strop.stats.intervals import LEVEL, RESAMPLES, Estimate, Index, cluster_bootstrap


def cohen_kappa(first: Sequence[Hashable], second: Sequence[Hashable]) -> float | None:
    """Cohen's kappa (1960), (observed - expected) / (1 - expected) agreement, in [-1, 1].

    Labels are compared as they are: 1 and "1" are two labels. None where there is nothing to compare,
    or where both sides hold one and the same label only, so that agreement is expected to be certain.
    Raises InputError for labellings of different length.
    """
    n = len(first)
    if n != len(second):
        raise InputError(f"{n} labels but {len(second)} on the other side; give two for each item")
    ours, theirs = Counter(first), Counter(second)
    expected = sum(count * theirs[label] for label, count in ours.items())
    if expected == n * n:
        return None
    observed = sum(a == b for a, b in zip(first, second, strict=True))
    return (observed * n - expected) / (n * n - expected)


def kappa_estimate(
    first: Sequence[Hashable],
    second: Sequence[Hashable],
    clusters: Sequence[Hashable],
    rng: np.random.Generator,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
) -> Estimate:
    """Cohen's kappa with a percentile bootstrap over clusters, one cluster an item."""
    if len(clusters) != len(first):
        raise InputError(f"{len(first)} labels but {len(clusters)} clusters; give one for each item")

    def statistic(chosen: Index) -> float | None:
        drawn = chosen.tolist()
        return cohen_kappa([first[i] for i in drawn], [second[i] for i in drawn])

    return cluster_bootstrap(clusters, statistic, rng, resamples, level)

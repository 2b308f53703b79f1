"""Folds by scenario: what is fitted on one scenario's runs is never measured on them."""

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from strop.stats.intervals import cluster_numbers

FOLDS = 5


def scenario_folds(
    scenarios: Sequence[Hashable], rng: np.random.Generator, folds: int = FOLDS
) -> NDArray[np.int64]:
    """Fold of each run from 0, [n]; scenarios shuffled, then dealt out, never split. At most one a fold
    where there are fewer scenarios than folds."""
    numbers = cluster_numbers(scenarios)
    k = int(numbers.max(initial=-1)) + 1
    dealt = np.arange(k) % max(1, min(folds, k))
    return np.asarray(rng.permutation(dealt)[numbers] if k else numbers, dtype=np.int64)

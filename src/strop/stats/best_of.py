"""Best of k out of n attempts, exactly: no draws, so no noise but that of the data."""

from math import comb

import numpy as np
from numpy.typing import ArrayLike, NDArray

from strop.errors import InputError
from strop.stats.intervals import finite_array


def pick_chances(scores: ArrayLike, k: int) -> NDArray[np.float64]:
    """Chance that each of n items is the best of k drawn without replacement, [n], summing to 1.

    With b items below a score and m items at it, one of the m is best with chance
    (C(b+m, k) − C(b, k)) / C(n, k), which the m share. Without ties that is C(i−1, k−1) / C(n, k) for
    the i-th lowest. k = n: the best item. Raises InputError unless 1 ≤ k ≤ n.
    """
    values = finite_array(scores, "scores")
    n = len(values)
    if not 1 <= k <= n:
        raise InputError(f"best of {k} out of {n}; k must lie between 1 and the number of attempts")
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    upto = [comb(int(c), k) for c in np.concatenate([[0], np.cumsum(counts)])]
    shares = [(upto[j + 1] - upto[j]) / upto[-1] / int(m) for j, m in enumerate(counts)]
    return np.asarray(shares, dtype=np.float64)[inverse]


def best_of_curve(scores: ArrayLike, values: ArrayLike, most: int) -> NDArray[np.float64]:
    """Mean value of the item with the highest score among k drawn, for k = 1 … most, [most].

    k = 1 is the mean of the values, a blind pick; `values` as their own `scores` give the oracle.
    """
    worth = finite_array(values, "values")
    return np.array([float(pick_chances(scores, k) @ worth) for k in range(1, most + 1)])

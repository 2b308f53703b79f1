"""From scores to probabilities: Platt's and isotonic maps, and how far to believe them."""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import isotonic_regression

from strop.stats.detection import midranks
from strop.stats.intervals import finite_array

Floats = NDArray[np.float64]
Map = Callable[[Floats], Floats]
"""Scores [m] to probabilities [m]."""

BINS = 10
STEPS = 100


def platt(scores: ArrayLike, labels: ArrayLike) -> Map:
    """P = 1 / (1 + exp(−(a·z + b))) for standardised scores z, by maximum likelihood.

    Platt (1999) with his targets (n₊+1)/(n₊+2) and 1/(n₋+2), so that separated classes stay finite.
    Equal scores: the share of positives so smoothed.
    """
    x, y = finite_array(scores, "scores"), finite_array(labels, "labels")
    centre, spread = float(x.mean()), float(x.std()) or 1.0
    positive = y.sum()
    target = np.where(y == 1, (positive + 1) / (positive + 2), 1 / (len(y) - positive + 2))
    design = np.stack([(x - centre) / spread, np.ones(len(x))])
    weights = np.zeros(2)
    for _ in range(STEPS):
        p = 1 / (1 + np.exp(-(weights @ design)))
        curvature = (design * (p * (1 - p))) @ design.T + 1e-9 * np.eye(2)
        step = np.linalg.solve(curvature, design @ (target - p))
        # Newton from 0 may overshoot where the classes are nearly apart.
        weights = weights + step * min(1.0, 4.0 / max(float(np.abs(step).max()), 1e-12))
        if float(np.abs(step).max()) < 1e-9:
            break
    a, b = weights

    def mapped(values: Floats) -> Floats:
        z = np.clip(a * (values - centre) / spread + b, -500, 500)
        result: Floats = 1 / (1 + np.exp(-z))
        return result

    return mapped


def isotonic(scores: ArrayLike, labels: ArrayLike) -> Map:
    """The rising step function nearest to the labels in squares (pool adjacent violators).

    Equal scores are one point; between points it is linear, beyond them flat.
    """
    x, y = finite_array(scores, "scores"), finite_array(labels, "labels")
    points, where, counts = np.unique(x, return_inverse=True, return_counts=True)
    means = np.bincount(where, weights=y) / counts
    heights = isotonic_regression(means, weights=counts.astype(np.float64)).x

    def mapped(values: Floats) -> Floats:
        result: Floats = np.interp(values, points, heights)
        return result

    return mapped


def expected_calibration_error(probabilities: ArrayLike, labels: ArrayLike, bins: int = BINS) -> float | None:
    """Σ over bins of equally many of (share of n) · |mean probability − share of positives|, in [0, 1].

    Ties stay in one bin. None for no observation. Even a perfect map has some: it shrinks as 1/√n.
    """
    p, y = finite_array(probabilities, "probabilities"), finite_array(labels, "labels")
    if not len(p):
        return None
    place = np.minimum(((midranks(p) - 0.5) * bins / len(p)).astype(int), bins - 1)
    gaps = np.bincount(place, weights=p, minlength=bins) - np.bincount(place, weights=y, minlength=bins)
    return float(np.abs(gaps).sum() / len(p))

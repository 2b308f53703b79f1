"""How well scores tell two classes apart."""

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from strop.errors import InputError
from strop.stats.intervals import LEVEL, RESAMPLES, Estimate, cluster_bootstrap, finite_array


def auroc(labels: ArrayLike, scores: ArrayLike) -> float | None:
    """Probability that a positive scores above a negative, ties counted half: Mann-Whitney's U / (n1 n0).

    `labels` 0 or 1 and `scores` finite, both [n]. One class only gives None.
    """
    positive, values = _labelled(labels, scores)
    n_pos, n_neg = int(positive.sum()), int((~positive).sum())
    if n_pos == 0 or n_neg == 0:
        return None
    u = midranks(values)[positive].sum() - n_pos * (n_pos + 1) / 2
    return float(u / (n_pos * n_neg))


def auprc(labels: ArrayLike, scores: ArrayLike) -> float | None:
    """Average precision: the sum over distinct scores, highest first, of precision times gained recall.

    No interpolation; equal scores enter together. Chance level is the share of positives. No
    positive gives None.
    """
    positive, values = _labelled(labels, scores)
    if not positive.any():
        return None
    order = np.argsort(-values, kind="stable")
    last_of_tie = np.append(np.diff(values[order]) != 0, True)
    hits = np.cumsum(positive[order])[last_of_tie]
    precision = hits / (np.flatnonzero(last_of_tie) + 1)
    return float(np.sum(precision * np.diff(hits, prepend=0)) / positive.sum())


def auroc_estimate(
    labels: ArrayLike,
    scores: ArrayLike,
    clusters: Sequence[Hashable],
    rng: np.random.Generator,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
) -> Estimate:
    """AUROC with a percentile bootstrap over clusters; one class or one cluster only: no number."""
    positive, values = _labelled(labels, scores)
    _one_each(positive, clusters)
    return cluster_bootstrap(clusters, lambda i: auroc(positive[i], values[i]), rng, resamples, level)


def midranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Ranks from 1 in ascending order, the mean rank for equal values, [n]."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    highest: NDArray[np.float64] = np.cumsum(counts).astype(np.float64)
    return (highest - (counts - 1) / 2)[inverse]


def _labelled(labels: ArrayLike, scores: ArrayLike) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    classes, values = finite_array(labels, "labels"), finite_array(scores, "scores")
    if len(classes) != len(values):
        raise InputError(f"{len(classes)} labels but {len(values)} scores; give one for each observation")
    if not np.isin(classes, (0.0, 1.0)).all():
        raise InputError("labels: a value other than 0 and 1; choose a threshold first")
    return classes == 1.0, values


def _one_each(labels: NDArray[np.bool_], clusters: Sequence[Hashable]) -> None:
    if len(labels) != len(clusters):
        raise InputError(f"{len(labels)} labels but {len(clusters)} clusters; give one for each observation")

"""Progress advantage on arrays: token log-ratios, and the ways to add them up. Pure functions.

For the optimal policy of the KL-regularised problem, β · (log π − log π_ref) of an action is its soft
advantage (Progress Advantage, arXiv 2606.26080, proposition 1). Its sum over an attempt equals the
return less a constant of the scenario less the luck of the world, so `sum` over tokens and steps is
the theory's score for choosing among attempts at one scenario.
"""

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from strop.errors import InputError

Floats = NDArray[np.float64]
Aggregator = Literal["sum", "mean", "min", "max", "last", "bottom10"]
Reading = Literal["aggregate-of-ratios", "difference-of-aggregates"]

AGGREGATORS: tuple[Aggregator, ...] = get_args(Aggregator)


def log_ratio(policy: ArrayLike, reference: ArrayLike) -> Floats:
    """r[t] = log π(t) − log π_ref(t) in nats, [T] from two [T]; exactly 0 where the two are equal.

    Raises InputError where the lengths differ or a number is not finite.
    """
    ours, theirs = np.asarray(policy, dtype=np.float64), np.asarray(reference, dtype=np.float64)
    if ours.ndim != 1 or ours.shape != theirs.shape:
        raise InputError(
            f"log-probs of policy {ours.shape} and reference {theirs.shape}: "
            "both models must score the same tokens"
        )
    if not (np.isfinite(ours).all() and np.isfinite(theirs).all()):
        raise InputError("log-probs must be finite")
    return ours - theirs


def centred(ratios: ArrayLike, kl: ArrayLike) -> Floats:
    """r[t] − KL(π ‖ π_ref)[t], both [T] in nats: the soft advantage less its mean under the policy.

    Sampled from the policy, a raw log-ratio drifts upward by the KL at each position, so a plain sum
    pays an attempt for being long where training moved much. Raises InputError for other lengths.
    """
    values, drift = np.asarray(ratios, dtype=np.float64), np.asarray(kl, dtype=np.float64)
    if values.shape != drift.shape:
        raise InputError(f"log-ratios {values.shape} and KL {drift.shape}: one KL for each position")
    return values - drift


def aggregate(values: ArrayLike, how: Aggregator) -> float:
    """One number from [K] values, K ≥ 1. `bottom10` is the mean of the lowest ceil(K / 10).

    Raises InputError for no values (nothing was measured, which is not a 0) and an unknown name.
    """
    array = np.asarray(values, dtype=np.float64)
    if array.size == 0:
        raise InputError(f"{how} of no values: an unscored part has no grade")
    match how:
        case "sum":
            return float(array.sum())
        case "mean":
            return float(array.mean())
        case "min":
            return float(array.min())
        case "max":
            return float(array.max())
        case "last":
            return float(array[-1])
        case "bottom10":
            return float(np.sort(array)[: -(-array.size // 10)].mean())
    raise InputError(f"unknown aggregator {how!r}: one of {', '.join(AGGREGATORS)}")


def aggregate_of_ratios(policy: ArrayLike, reference: ArrayLike, how: Aggregator) -> float:
    """agg_t(log π[t] − log π_ref[t]): the theory's reading, the token ratio first."""
    return aggregate(log_ratio(policy, reference), how)


def difference_of_aggregates(policy: ArrayLike, reference: ArrayLike, how: Aggregator) -> float:
    """agg_t(log π[t]) − agg_t(log π_ref[t]): the reading of the paper's released code.

    The same as `aggregate_of_ratios` for sum, mean and last. For min, max and bottom10 it may set
    different tokens of the two models against each other.
    """
    log_ratio(policy, reference)
    return aggregate(policy, how) - aggregate(reference, how)


def step_grade(
    policy: ArrayLike, reference: ArrayLike, how: Aggregator = "sum", reading: Reading = "aggregate-of-ratios"
) -> float:
    """Grade of one step in units of β from the log-probs of its tokens, under the reading named."""
    if reading == "aggregate-of-ratios":
        return aggregate_of_ratios(policy, reference, how)
    return difference_of_aggregates(policy, reference, how)


def trajectory_grade(grades: Sequence[float], how: Aggregator = "sum") -> float:
    """One number from the step grades, in order. Raises InputError for no step."""
    return aggregate(grades, how)

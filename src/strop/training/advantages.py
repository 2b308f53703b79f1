"""Group-relative advantages: scores of one group in, one number a trajectory out. Pure, float64."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from strop.errors import InputError

Scale = Literal["std", "none", "rank"]
GroupDrop = Literal["unscored", "singleton", "tied"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupAdvantages:
    """Advantages of one group, in the order of its scores.

    `values` float64 [n], always finite, 0 where not kept; `kept` bool [n], true where there was a
    score; `dropped_reason` why the whole group teaches nothing (then all values are exactly 0):
    "unscored" no score at all, "singleton" one score and nothing to compare it with, "tied" no
    difference beyond the tolerance. None where the group is used.
    """

    values: NDArray[np.float64]
    kept: NDArray[np.bool_]
    dropped_reason: GroupDrop | None


def advantages(
    scores: Sequence[float | None],
    *,
    scale: Scale = "std",
    leave_one_out: bool = False,
    tolerance: float = 1e-6,
    noise_floor: float = 0.0,
    eps: float = 0.0,
) -> GroupAdvantages:
    """Each score against the scores of its group; None is left out of the baseline as well.

    `std`: (s - mean) / (max(std, noise_floor) + eps) as in GRPO (arXiv 2402.03300), with the
    unbiased standard deviation (n - 1), two-pass. Unchanged by any map a·s + b with a > 0 as long as
    eps and noise_floor do not bite; |value| < sqrt(n), at most (n - 1) / sqrt(n). The population
    convention of some trainers is sqrt(n / (n - 1)) times this.
    `none`: s - mean as in Dr. GRPO (arXiv 2503.20783); the judge's scale acts as a learning rate.
    `rank`: the tie-averaged rank from 0 to 1, minus 1/2; unchanged by any increasing map that keeps
    scores further apart than `tolerance` and std above noise_floor.

    `leave_one_out` takes each score against the mean of the others (RLOO, arXiv 2402.14740), without the
    score itself in it, which is n / (n - 1) times as far: an unbiased baseline, of weight in small groups.
    The spread stays that of the whole group, so that with `std` |value| is at most sqrt(n); the spread of
    the others alone vanishes where they agree, and would leave no bound.

    A group whose max - min is at most `tolerance` gives exactly 0. `noise_floor` is the judge's own
    standard deviation for one score: a group that differs by less is scaled down in proportion,
    instead of being blown up to a full-size update. `eps` is only for peers' conventions (1e-6 or
    1e-4). Raises InputError for a score that is not finite.
    """
    kept = np.array([score is not None for score in scores], dtype=np.bool_)
    present = np.array([score for score in scores if score is not None], dtype=np.float64)
    if not np.isfinite(present).all():
        raise InputError(f"score {present[~np.isfinite(present)][0]} is not finite; leave it out as unscored")
    reason = _why_dropped(present, tolerance)
    values = np.zeros(len(scores), dtype=np.float64)
    if reason is None:
        baseline = present.size / (present.size - 1) if leave_one_out else 1.0
        values[kept] = baseline * _scaled(present, scale, tolerance, noise_floor, eps)
    return GroupAdvantages(values=values, kept=kept, dropped_reason=reason)


def _why_dropped(present: NDArray[np.float64], tolerance: float) -> GroupDrop | None:
    if present.size == 0:
        return "unscored"
    if present.size == 1:
        return "singleton"
    return "tied" if np.ptp(present) <= tolerance else None


def _scaled(
    present: NDArray[np.float64], scale: Scale, tolerance: float, noise_floor: float, eps: float
) -> NDArray[np.float64]:
    centred: NDArray[np.float64] = present - present.mean()
    if scale == "none":
        return centred
    std = float(np.sqrt(np.square(centred).sum() / (present.size - 1)))
    if scale == "std":
        return centred / (max(std, noise_floor) + eps)
    held = min(1.0, std / noise_floor) if noise_floor > 0 else 1.0
    ranks: NDArray[np.float64] = _tied_ranks(present, tolerance) / (present.size - 1) - 0.5
    return held * ranks


def _tied_ranks(present: NDArray[np.float64], tolerance: float) -> NDArray[np.float64]:
    """Ranks from 0, averaged over runs of scores whose neighbours differ by at most `tolerance`."""
    order = np.argsort(present, kind="stable")
    run = np.concatenate([[0], np.cumsum(np.diff(present[order]) > tolerance)])
    mean_rank = np.bincount(run, weights=np.arange(present.size)) / np.bincount(run)
    ranks = np.empty(present.size, dtype=np.float64)
    ranks[order] = mean_rank[run]
    return ranks

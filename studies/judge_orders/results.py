"""The study's numbers: tau by plan, differences at equal and unequal cost, escalation, reliability."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from strop.judge.settings import JudgeSettings
from strop.seeds import generator
from strop.stats.agreement import RatedGroup, mean_kendall_tau
from strop.stats.detection import auroc_estimate
from strop.stats.intervals import Estimate, cluster_mean
from studies.judge_orders.simulate import FEW, MANY, NOISE, Judged, Setting, simulate, taus

SIZES = (4, 8)
STRENGTHS = (0.0, 0.5, 1.0, 1.5, 2.0, -0.5, -1.0, -1.5, -2.0)
ENDS = (1.5,)
THRESHOLDS = (0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)
BINS = (0.0, 0.35, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
RELIABILITY_STRENGTH = 1.0
CLAIM = 0.08
DEFAULT = JudgeSettings().escalate_below


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One setting: mean tau by plan, the default's mean calls, and what it is above other plans."""

    setting: Setting
    tau: Mapping[str, Estimate]
    calls: Estimate
    above: Mapping[str, Estimate]


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """One value of escalate_below, means over all sizes and strengths.

    `gain` is tau above the same number of further calls spent on groups drawn by lot.
    """

    below: float
    calls: float
    tau: float
    gain: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    """Groups whose two calls agreed to between `low` and `high`: their mean tau."""

    low: float
    high: float
    reliability: float
    two_calls: Estimate
    default: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Reliability against tau in one setting; `auroc` of telling the better half of the groups."""

    setting: Setting
    bins: Sequence[Bin]
    auroc: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """The whole study."""

    groups: int
    cells: Sequence[Cell]
    thresholds: Sequence[Threshold]
    curves: Sequence[Curve]


def results(groups: int) -> Results:
    """Everything, with `groups` groups a setting; thresholds are chosen on groups of their own."""
    settings = [Setting(attempts=n, strength=s) for n in SIZES for s in STRENGTHS]
    settings += [Setting(attempts=n, strength=s, effect="ends") for n in SIZES for s in ENDS]
    reliable = [
        Setting(attempts=n, strength=RELIABILITY_STRENGTH, noise=noise)
        for noise in (NOISE, None)
        for n in SIZES
    ]
    return Results(
        groups=groups,
        cells=[cell(setting, groups) for setting in settings],
        thresholds=thresholds(groups),
        curves=[curve(setting, 2 * groups) for setting in reliable],
    )


def cell(setting: Setting, groups: int) -> Cell:
    """All plans on the same groups; those at the same calls escalate as many groups, drawn by lot."""
    judged = simulate(setting, groups, "judge orders")
    more = judged.escalated(DEFAULT)
    lot = generator(0, "lot", str(setting)).permutation(more)
    plans: dict[str, Sequence[RatedGroup]] = dict(judged.by_plan)
    plans["default"] = judged.default()
    for name in ("fixed", "random", "mirrored"):
        plans[f"{name}, same calls"] = judged.mixed(name, lot)
    calls = FEW + (MANY - FEW) * more.astype(np.float64)
    ours = taus(plans["default"])
    return Cell(
        setting=setting,
        tau={name: mean_kendall_tau(rated, _rng("tau")) for name, rated in plans.items()},
        calls=cluster_mean(calls, range(groups), _rng("calls")),
        above={name: _above(ours, taus(rated)) for name, rated in plans.items() if name != "default"}
        | {"two calls: mirrored - random": _two_calls(judged, "random")}
        | {"two calls: mirrored - fixed": _two_calls(judged, "fixed")},
    )


def thresholds(groups: int) -> list[Threshold]:
    """Every threshold on groups whose seeds no other table shares, all sizes and strengths >= 0 together."""
    settings = [Setting(attempts=n, strength=s) for n in SIZES for s in STRENGTHS if s >= 0]
    pool = [simulate(setting, groups, "escalation") for setting in settings]
    return [_threshold(below, pool) for below in THRESHOLDS]


def curve(setting: Setting, groups: int) -> Curve:
    """Groups in bins of the reliability of their first two calls."""
    judged = simulate(setting, groups, "reliability")
    two, ours = judged.by_plan[f"mirrored x{FEW}"], judged.default()
    tau = taus(two)
    known = np.flatnonzero(~np.isnan(tau))
    good = tau[known] > np.median(tau[known])
    bins = [_bin(low, high, judged, two, ours) for low, high in pairwise(BINS)]
    return Curve(
        setting=setting,
        bins=[one for one in bins if one is not None],
        auroc=auroc_estimate(good, judged.reliability[known], known.tolist(), _rng("auroc"), 500),
    )


def _bin(
    low: float, high: float, judged: Judged, two: Sequence[RatedGroup], ours: Sequence[RatedGroup]
) -> Bin | None:
    inside = (judged.reliability >= low) & ((judged.reliability < high) | (high == BINS[-1]))
    chosen = np.flatnonzero(inside)
    if not len(chosen):
        return None
    return Bin(
        low=low,
        high=high,
        reliability=float(judged.reliability[chosen].mean()),
        two_calls=mean_kendall_tau([two[int(i)] for i in chosen], _rng("bin")),
        default=mean_kendall_tau([ours[int(i)] for i in chosen], _rng("bin")),
    )


def _threshold(below: float, pool: Sequence[Judged]) -> Threshold:
    gains, reached, shares = [], [], []
    for judged in pool:
        two, four = taus(judged.by_plan[f"mirrored x{FEW}"]), taus(judged.by_plan[f"mirrored x{MANY}"])
        more = judged.escalated(below)
        ours = np.where(more, four, two)
        by_lot = two + more.mean() * (four - two)
        gains.append(ours - by_lot)
        reached.append(np.nanmean(ours))
        shares.append(more.mean())
    gain = np.concatenate(gains)
    gain = gain[~np.isnan(gain)]
    return Threshold(
        below=below,
        calls=float(FEW + (MANY - FEW) * np.mean(shares)),
        tau=float(np.mean(reached)),
        gain=cluster_mean(gain, range(len(gain)), _rng("gain"), 500),
    )


def _two_calls(judged: Judged, other: str) -> Estimate:
    return _above(taus(judged.by_plan[f"mirrored x{FEW}"]), taus(judged.by_plan[f"{other} x{FEW}"]))


def _above(ours: NDArray[np.float64], theirs: NDArray[np.float64]) -> Estimate:
    """Mean paired difference over the groups that have a tau in both plans."""
    difference = ours - theirs
    known = difference[~np.isnan(difference)]
    return cluster_mean(known, range(len(known)), _rng("difference"))


def _rng(name: str) -> np.random.Generator:
    return generator(0, "bootstrap", name)

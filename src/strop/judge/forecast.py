"""What the judging still to come will take, from what it took so far."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from math import sqrt
from statistics import fmean, stdev
from typing import Any

from strop.errors import InputError
from strop.judge.ledger import Ledger
from strop.judge.verdict import Cost
from strop.stats.intervals import LEVEL, Estimate, check_level, undefined

FEWEST = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """Totals over the groups still to be judged, not what one of them takes.

    `seconds` add up over calls, so that calls at the same time count apart. `money` is None where a
    price is unknown. Where too little was judged an estimate is None and its method says so.
    """

    groups_left: int
    calls: Estimate
    tokens_in: Estimate
    tokens_out: Estimate
    money: Estimate | None
    seconds: Estimate

    def to_json(self) -> dict[str, Any]:
        """A plain object, each estimate as one."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        return {
            name: value.to_json() if isinstance(value, Estimate) else value for name, value in values.items()
        }


def forecast(ledger: Ledger, groups_left: int, level: float = LEVEL) -> Forecast:
    """What `groups_left` more groups will take if they are like those judged so far.

    Groups whose replies were kept from before are left out, and of tokens and money those with a call
    whose tokens the server did not report; `excluded` counts both. See `total_to_come` for the interval.
    Raises InputError for a negative number of groups.
    """
    if groups_left < 0:
        raise InputError(f"{groups_left} groups left to judge; give a number of at least 0")
    metered = [cost for cost in ledger.judged if not cost.unmetered]
    unmetered = len(ledger.judged) - len(metered)

    def total(of: Callable[[Cost], float], costs: Sequence[Cost], left_out: int) -> Estimate:
        return total_to_come([of(cost) for cost in costs], groups_left, ledger.reused + left_out, level)

    known = all(cost.money is not None for cost in metered)
    return Forecast(
        groups_left=groups_left,
        calls=total(lambda cost: cost.calls, ledger.judged, 0),
        tokens_in=total(lambda cost: cost.tokens_in, metered, unmetered),
        tokens_out=total(lambda cost: cost.tokens_out, metered, unmetered),
        money=total(lambda cost: cost.money or 0.0, metered, unmetered) if known else None,
        seconds=total(lambda cost: cost.seconds, ledger.judged, 0),
    )


def total_to_come(values: Sequence[float], left: int, excluded: int = 0, level: float = LEVEL) -> Estimate:
    """The sum of `left` further values >= 0 like the n seen, with a prediction interval.

    left * (mean +- t * s * sqrt(1/n + 1/left)) with n - 1 degrees of freedom: it covers the scatter of
    those to come as well as that of the mean. Not under 0. Under FEWEST values: no number. Values that
    are all the same give an interval without width, and `method` says so.
    """
    n = len(values)
    if n < FEWEST:
        return undefined(f"too little data, {n} judged, {FEWEST} are needed", n=n, excluded=excluded)
    mean, spread = fmean(values), stdev(values)
    half = left * _t(n - 1, level) * spread * sqrt(1 / n + 1 / left) if left else 0.0
    method = f"mean of {n} groups x {left} left, t prediction interval {level:.0%}"
    return Estimate(
        estimate=left * mean,
        low=max(0.0, left * mean - half),
        high=left * mean + half,
        n=n,
        method=method if spread else f"{method}; the groups do not differ",
        excluded=excluded,
    )


def _t(degrees: int, level: float) -> float:
    """Student's t quantile for a two-sided interval."""
    from scipy.special import stdtrit

    return float(stdtrit(degrees, 0.5 + check_level(level) / 2))

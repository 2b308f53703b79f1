"""How numbers are written on the page. Takes estimates as JSON objects; None and no number are words."""

from collections.abc import Mapping
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

EstimateJson = Mapping[str, Any]

NOT_MEASURED = "not measured"


def hundredths(number: float) -> Decimal:
    """The number as it is written in decimals, at two places: 0.975 is 0.98, as 97.5 % is 98 %."""
    return Decimal(str(number)).quantize(Decimal("0.01"), ROUND_HALF_UP)


def measured(estimate: EstimateJson | None) -> bool:
    """Whether there is a number at all."""
    return bool(estimate) and estimate is not None and estimate.get("estimate") is not None


def value(estimate: EstimateJson | None) -> str:
    """ "0.93", or "not measured"."""
    return f"{hundredths(estimate['estimate'])}" if estimate and measured(estimate) else NOT_MEASURED


def share(estimate: EstimateJson | None) -> str:
    """ "93 %", or "not measured"."""
    return (
        f"{100 * hundredths(estimate['estimate']):.0f} %" if estimate and measured(estimate) else NOT_MEASURED
    )


def interval(estimate: EstimateJson | None) -> str:
    """ "0.89 to 0.96", or nothing where there is no interval."""
    if not estimate or estimate.get("low") is None or estimate.get("high") is None:
        return ""
    return f"{hundredths(estimate['low'])} to {hundredths(estimate['high'])}"


def basis(estimate: EstimateJson | None) -> str:
    """What the number rests on, in words: n, independent units, what was left out, method."""
    if not estimate:
        return NOT_MEASURED
    words = [f"n = {estimate.get('n', 0)}"]
    if estimate.get("clusters") is not None:
        words.append(f"{estimate['clusters']} independent units")
    if estimate.get("excluded"):
        words.append(f"{estimate['excluded']} left out")
    return ", ".join([*words, str(estimate.get("method", ""))])


def headline(summary: Mapping[str, Any]) -> str:
    """One sentence on truth before and after; the verb follows the interval of the difference.

    The hyphen is one that no line breaks at.
    """
    before, after = summary.get("truth_before"), summary.get("truth_after")
    if not (measured(before) and measured(after)):
        return "Truth on held\u2011out scenarios was not measured before and after training."
    difference = summary.get("truth_difference") or {}
    verb = "went"
    if (difference.get("low") or 0) > 0:
        verb = "rose"
    elif (difference.get("high") or 0) < 0:
        verb = "fell"
    elif measured(difference):
        verb = "did not move measurably: it went"
    return f"Truth on held\u2011out scenarios {verb} from {share(before)} to {share(after)}."


def duration(seconds: float) -> str:
    """ "42 s", "3 min 05 s" or "2 h 10 min"."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s" if whole or not seconds else f"{seconds:.1f} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def words(name: str) -> str:
    """A key as a reader sees it: underscores are spaces."""
    return name.replace("_", " ")

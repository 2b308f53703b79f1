"""What judging took and will take, in words."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from strop.judge.forecast import Forecast
    from strop.judge.verdict import Cost


def spent(cost: "Cost") -> str:
    """Calls, tokens and money so far."""
    return f"{cost.calls} calls  {short(cost.tokens_in + cost.tokens_out)} tokens  {money(cost.money)}"


def expected(left: "Forecast") -> str:
    """What is still to come, in money where that is known, with its interval; nothing where too little is."""
    for estimate, unit, write in ((left.money, "", dollars), (left.tokens_in, " tokens", short)):
        if left.groups_left and estimate is not None and estimate.estimate is not None:
            low, high = write(estimate.low or 0.0), write(estimate.high or 0.0)
            return f"{write(estimate.estimate)} ({low} to {high}){unit} to come"
    return ""


def to_come(forecast: Mapping[str, Any]) -> str:
    """A forecast's JSON object in a line: estimates only."""
    parts = [f"{forecast['groups_left']} groups left"]
    if forecast["calls"]["estimate"] is None:
        return f"{parts[0]}, {forecast['calls']['method'].removeprefix('none: ')}"
    parts += [
        f"{short(forecast[name]['estimate'])} {name.replace('_', ' ')}" for name in ("calls", "tokens_in")
    ]
    price = forecast["money"]
    return ", ".join([*parts, money(price and price["estimate"])])


def money(amount: float | None) -> str:
    """US dollars, where the price is known."""
    return "price unknown" if amount is None else dollars(amount)


def dollars(amount: float) -> str:
    """US dollars in three digits or so."""
    return f"${amount:.3g}" if amount < 100 else f"${amount:.0f}"


def short(count: float) -> str:
    """A count in three digits or so: 950, 12.3k, 4.56M."""
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if count >= size:
            return f"{count / size:.3g}{unit}"
    return f"{count:.0f}"

"""What judging says on standard error."""

from collections.abc import Sequence

import pytest

from strop.app.sitting import Standing
from strop.cli.cost import dollars, expected, money, short, to_come
from strop.cli.judge_progress import JudgeProgress
from strop.judge.forecast import forecast
from strop.judge.ledger import Ledger
from strop.judge.verdict import Cost


class Lines:
    """A display that remembers."""

    def __init__(self) -> None:
        self.shown: list[tuple[str, str, int, int]] = []
        self.closed = False

    def show(self, heading: str, left: str, done: int, total: int) -> None:
        self.shown.append((heading, left, done, total))

    def close(self) -> None:
        self.closed = True


def ledger(prices: Sequence[float | None]) -> Ledger:
    """Of groups that each took 2 calls and 1000 tokens, at these prices."""
    costs = [Cost(tokens_in=1000, tokens_out=10, money=price, seconds=1, calls=2) for price in prices]
    return Ledger(cost=sum(costs, Cost()), judged=costs)


def told(standing: Standing, *, after: float = 0.0) -> tuple[str, str, int, int]:
    display, times = Lines(), iter([0.0, after])
    with JudgeProgress(display, lambda: next(times)) as progress:
        progress(Standing(done=0, total=standing.total, cost=Cost(), left=standing.left))
        progress(standing)
    assert display.closed
    return display.shown[-1]


def test_what_was_spent_and_what_is_to_come() -> None:
    spent = ledger([0.5, 0.5, 0.5, 0.5])
    standing = Standing(done=4, total=10, cost=spent.cost, left=forecast(spent, 6))
    assert told(standing, after=8.0) == (
        "judging",
        "8 calls  4.04k tokens  $2  $3 ($3 to $3) to come  0:12 left",
        4,
        10,
    )


def test_an_unknown_price_is_said_and_tokens_are_forecast() -> None:
    spent = ledger([None, None, None])
    standing = Standing(done=3, total=4, cost=spent.cost, left=forecast(spent, 1))
    assert told(standing)[1].startswith("6 calls  3.03k tokens  price unknown  1k (1k to 1k) tokens to come")


def test_too_little_data_forecasts_nothing() -> None:
    assert expected(forecast(ledger([0.5]), 9)) == ""
    assert expected(forecast(ledger([0.5] * 9), 0)) == ""


@pytest.mark.parametrize(("seconds", "heading"), [(1.0, "judging"), (12.0, "waiting")])
def test_a_wait_is_said_with_its_reason(seconds: float, heading: str) -> None:
    left = forecast(Ledger(), 4)
    standing = Standing(done=0, total=4, cost=Cost(), left=left, waiting="429", waiting_s=seconds)
    assert told(standing)[:2] == (heading, f"waiting {seconds:.0f} s: 429")


def test_stopping_says_how_to_stop_at_once() -> None:
    standing = Standing(done=1, total=4, cost=Cost(), left=forecast(Ledger(), 3), stopping=True)
    assert "Ctrl-C again" in told(standing)[0]


def test_a_forecast_in_a_line() -> None:
    assert to_come(forecast(ledger([0.5] * 3), 10).to_json()) == "10 groups left, 20 calls, 10k tokens in, $5"
    unpriced = to_come(forecast(ledger([None] * 3), 10).to_json())
    assert unpriced == "10 groups left, 20 calls, 10k tokens in, price unknown"
    assert to_come(forecast(Ledger(), 10).to_json()).startswith("10 groups left, too little data")


def test_numbers_in_three_digits() -> None:
    assert [short(value) for value in (0, 950, 12_345, 4_560_000)] == ["0", "950", "12.3k", "4.56M"]
    assert [dollars(value) for value in (0, 0.01234, 12.345, 1234.5)] == ["$0", "$0.0123", "$12.3", "$1234"]
    assert money(None) == "price unknown"

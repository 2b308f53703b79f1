"""What is still to come, from what was: the mean times what is left, with an interval that covers it."""

import json
from math import sqrt

import numpy as np
import pytest

from strop.errors import InputError
from strop.judge.forecast import forecast, total_to_come
from strop.judge.ledger import Ledger
from strop.judge.verdict import Cost, Failure, Verdict

T_2 = 4.302652729911275  # Student's t, 2 degrees of freedom, 97.5 %; any printed table has 4.303
T_4 = 2.7764451051977934


def cost(tokens: int, **other: object) -> Cost:
    values = {"calls": 2, "money": tokens / 100, "seconds": tokens / 10, **other}
    return Cost(tokens_in=tokens, tokens_out=2 * tokens, **values)  # type: ignore[arg-type]


def ledger_of(*costs: Cost) -> Ledger:
    ledger = Ledger()
    for each in costs:
        ledger.record(Verdict(scores={"t": 0.5}, cost=each))
    return ledger


def test_the_total_is_the_mean_times_what_is_left() -> None:
    expected = forecast(ledger_of(cost(10), cost(20), cost(30)), 6)
    half = T_2 * 10 * sqrt(1 / 3 + 1 / 6)  # of the mean of six more
    tokens = expected.tokens_in
    assert tokens.estimate == pytest.approx(6 * 20)
    assert tokens.high == pytest.approx(6 * (20 + half))
    assert tokens.low == 0.0  # 6 * (20 - half) is negative
    assert (tokens.n, tokens.excluded) == (3, 0)
    assert tokens.method == "mean of 3 groups x 6 left, t prediction interval 95%"
    assert expected.tokens_out.estimate == pytest.approx(2 * 120)
    assert expected.tokens_out.high == pytest.approx(2 * (tokens.high or 0))
    assert expected.seconds.estimate == pytest.approx(12)
    assert expected.money is not None
    assert expected.money.estimate == pytest.approx(1.2)
    assert (expected.calls.estimate, expected.calls.low, expected.calls.high) == (12, 12, 12)
    assert "do not differ" in expected.calls.method


def test_both_ends_of_the_interval() -> None:
    values = [99.0, 100.0, 100.0, 100.0, 101.0]
    half = 10 * T_4 * sqrt(0.5) * sqrt(1 / 5 + 1 / 10)
    estimate = total_to_come(values, 10)
    assert (estimate.low, estimate.high) == (pytest.approx(1000 - half), pytest.approx(1000 + half))


def test_the_interval_covers_what_comes() -> None:
    rng = np.random.default_rng(0)
    trials, covered = 1000, 0
    for _ in range(trials):
        seen, coming = rng.normal(100, 10, size=5), rng.normal(100, 10, size=8)
        estimate = total_to_come(list(seen), 8)
        assert estimate.low is not None
        assert estimate.high is not None
        covered += estimate.low <= coming.sum() <= estimate.high
    assert abs(covered / trials - 0.95) < 4 * sqrt(0.95 * 0.05 / trials)


@pytest.mark.parametrize("judged", [0, 1, 2])
def test_too_little_data_says_so(judged: int) -> None:
    expected = forecast(ledger_of(*[cost(10)] * judged), 5)
    for estimate in (expected.calls, expected.tokens_in, expected.money, expected.seconds):
        assert estimate is not None
        assert (estimate.estimate, estimate.low, estimate.high, estimate.n) == (None, None, None, judged)
        assert "too little data" in estimate.method


def test_nothing_left_takes_nothing() -> None:
    tokens = forecast(ledger_of(cost(10), cost(20), cost(30)), 0).tokens_in
    assert (tokens.estimate, tokens.low, tokens.high) == (0, 0, 0)
    with pytest.raises(InputError):
        forecast(Ledger(), -1)


def test_an_unknown_price_is_no_money() -> None:
    expected = forecast(ledger_of(*[cost(10, money=None)] * 3), 5)
    assert expected.money is None
    assert expected.tokens_in.estimate == 50


def test_what_says_nothing_about_the_rest_is_left_out_and_counted() -> None:
    ledger = ledger_of(cost(10), cost(10), cost(10), cost(0, unmetered=1, calls=4, money=0.0, seconds=9.0))
    ledger.record(Verdict(scores={"t": 0.5}, flags=("cached",)))
    ledger.record(Verdict(failure=Failure.OVER_BUDGET))
    expected = forecast(ledger, 4)
    assert (expected.tokens_in.estimate, expected.tokens_in.n, expected.tokens_in.excluded) == (40, 3, 2)
    assert (expected.calls.estimate, expected.calls.n, expected.calls.excluded) == (10, 4, 1)
    assert expected.seconds.estimate == pytest.approx(12)


def test_groups_that_take_no_call_count() -> None:
    """Identical attempts are not judged, now or later."""
    assert forecast(ledger_of(cost(30), cost(30), Cost()), 3).tokens_in.estimate == 60


def test_a_forecast_is_plain_json() -> None:
    expected = forecast(ledger_of(cost(10), cost(20), cost(30)), 6)
    told = json.loads(json.dumps(expected.to_json()))
    assert set(told) == {"groups_left", "calls", "tokens_in", "tokens_out", "money", "seconds"}
    assert told["groups_left"] == 6
    assert set(told["money"]) >= {"estimate", "low", "high", "n", "method"}
    assert forecast(ledger_of(*[cost(10, money=None)] * 3), 1).to_json()["money"] is None

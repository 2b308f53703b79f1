"""What was spent and how it ended: sums that are those of the calls."""

import json

from strop.judge.ledger import Ledger
from strop.judge.verdict import Cost, Failure, Reply, Verdict


def reply(failure: Failure | None = None, calls: int = 1) -> Reply:
    cost = Cost(calls=calls)
    return Reply(text="", finish_reason=None, nonce="", shown={}, failure=failure, cost=cost)


def verdict(failure: Failure | None = None, *replies: Reply, flags: tuple[str, ...] = ()) -> Verdict:
    scores = None if failure else {"t": 0.5}
    cost = sum((one.cost for one in replies), Cost())
    return Verdict(scores=scores, failure=failure, flags=flags, replies=replies, cost=cost)


def test_x48_bills_add_up() -> None:
    ledger = Ledger()
    ledger.bill(
        Cost(tokens_in=100, tokens_cached=40, tokens_out=20, money=0.25, seconds=1.5, calls=1),
        {"429": 2, "lost": 1},
    )
    ledger.bill(Cost(money=0.0, seconds=0.5, calls=1, unmetered=1), {"429": 1})
    ledger.bill(Cost(tokens_in=10, tokens_out=2, money=0.5, seconds=1.0, calls=1))
    assert ledger.cost == Cost(
        tokens_in=110, tokens_cached=40, tokens_out=22, money=0.75, seconds=3.0, calls=3, unmetered=1
    )
    assert ledger.retried == {"429": 3, "lost": 1}
    assert ledger.requests == 7


def test_one_unknown_price_makes_the_sum_unknown() -> None:
    ledger = Ledger()
    ledger.bill(Cost(money=1.0, calls=1))
    ledger.bill(Cost(money=None, calls=1))
    ledger.bill(Cost(money=1.0, calls=1))
    assert ledger.totals()["money"] is None


def test_verdicts_and_attempts_are_counted_by_class() -> None:
    ledger = Ledger()
    ledger.record(verdict(None, reply(Failure.NO_JSON), reply(), flags=("reasked",)))
    ledger.record(verdict(Failure.TIMEOUT, reply(Failure.TIMEOUT)))
    ledger.record(verdict(Failure.OVER_BUDGET))
    assert ledger.failures_in_a_row == 2
    ledger.record(verdict(None, reply(calls=0), flags=("cached",)))
    totals = ledger.totals()
    assert totals["outcomes"] == {"ok": 2, "over_budget": 1, "timeout": 1}
    assert totals["attempts"] == {"no_json": 1, "ok": 1, "timeout": 1}
    assert totals["flags"] == {"cached": 1, "reasked": 1}
    assert (totals["groups"], totals["reused"]) == (4, 1)
    assert [cost.calls for cost in ledger.judged] == [2, 1]


def test_failures_in_a_row_end_with_a_verdict_that_a_call_gave() -> None:
    ledger = Ledger()
    assert ledger.dead_after(1) is None
    ledger.record(verdict(Failure.TIMEOUT, reply(Failure.TIMEOUT)))
    ledger.record(verdict(None, reply(calls=0), flags=("cached",)))
    ledger.record(verdict(None, flags=("identical",)))
    ledger.record(verdict(Failure.NO_JSON, reply(Failure.NO_JSON)))
    assert ledger.dead_after(3) is None
    assert ledger.dead_after(0) is None
    assert (ledger.dead_after(2) or "").startswith("no verdict for 2 groups in a row (no_json: ")
    ledger.record(verdict(None, reply(), reply(calls=0), flags=("cached",)))
    assert ledger.dead_after(1) is None
    ledger.record(verdict(Failure.OVER_BUDGET))
    assert ledger.dead_after(1) is not None


def test_totals_are_plain_json() -> None:
    ledger = Ledger()
    ledger.bill(Cost(calls=1, tokens_in=3), {"503": 1})
    ledger.record(verdict(Failure.EMPTY, reply(Failure.EMPTY)))
    totals = json.loads(json.dumps(ledger.totals()))
    assert totals == ledger.totals()
    assert (totals["calls"], totals["requests"], totals["retried"]) == (1, 2, {"503": 1})
    assert (totals["tokens_in"], totals["tokens_cached"], totals["unmetered"]) == (3, 0, 0)

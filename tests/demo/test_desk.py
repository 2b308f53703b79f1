"""The order desk over its real database: tools, timeouts, decisions that stand."""

import json
import math
from typing import Any

import pytest
from scipy import stats

from strop.demo.desk import LOOKUP_FAILS, POLICY, SYSTEM, TOOLS, OrderDesk, desk_scenario, open_desk
from strop.demo.orders import FINAL, REFUNDABLE, OrderScenario, scenario
from strop.rollout.environment import Scenario
from strop.seeds import generator

CASE = scenario("train", 0)


def desk(case: OrderScenario = CASE, seed: int = 0) -> OrderDesk:
    return OrderDesk(case, generator(seed, "test desk"))


def result(of: OrderDesk, tool: str, **arguments: Any) -> dict[str, Any]:
    value = json.loads(of.call(tool, arguments))
    assert isinstance(value, dict)
    return value


def looked_up(of: OrderDesk, number: str) -> dict[str, Any]:
    """Try until the lookup does not time out."""
    while (found := result(of, "lookup", order=number)) == {"error": "timeout"}:
        pass
    return found


def test_lookup_gives_what_is_in_the_database() -> None:
    assert looked_up(desk(), CASE.order) == {"item": CASE.item, "status": CASE.status}


def test_lookups_time_out_at_the_stated_rate() -> None:
    """1000 desks, one lookup each: the exact binomial test, and an interval of 0.06 around the rate."""
    failed = sum(
        result(desk(seed=seed), "lookup", order=CASE.order) == {"error": "timeout"} for seed in range(1000)
    )
    assert stats.binomtest(failed, 1000, LOOKUP_FAILS).pvalue > 0.001
    assert abs(failed / 1000 - LOOKUP_FAILS) < 0.06


def test_timeouts_of_one_desk_are_independent_of_each_other() -> None:
    """Pairs of neighbours in 4000 lookups at one desk: both fail in a fifth of a fifth, within 4 sigma."""
    one = desk(seed=3)
    fails = [result(one, "lookup", order=CASE.order) == {"error": "timeout"} for _ in range(4000)]
    both = sum(a and b for a, b in zip(fails[::2], fails[1::2], strict=True))
    expected = 2000 * LOOKUP_FAILS**2
    assert abs(both - expected) < 4 * math.sqrt(expected * (1 - LOOKUP_FAILS**2))


def test_the_seed_alone_decides_which_lookups_fail() -> None:
    def pattern(seed: int) -> list[str]:
        opened = open_desk(Scenario(scenario_id=CASE.scenario_id), seed)
        return [opened.call("lookup", {"order": CASE.order}) for _ in range(30)]

    assert pattern(1) == pattern(1)
    assert len({tuple(pattern(seed)) for seed in range(10)}) == 10


def test_another_order_is_never_found_and_costs_no_luck() -> None:
    one, other = desk(seed=5), desk(seed=5)
    for number in ("9999", "", f" {CASE.order}", f"{CASE.order}.0"):
        assert result(other, "lookup", order=number) == {"error": "no such order"}
    assert result(other, "lookup") == {"error": "no such order"}
    for _ in range(20):
        assert result(one, "lookup", order=CASE.order) == result(other, "lookup", order=CASE.order)


def test_an_order_number_may_come_as_a_number() -> None:
    assert looked_up(desk(), int(CASE.order)) == {"item": CASE.item, "status": CASE.status}  # type: ignore[arg-type]


@pytest.mark.parametrize("first", ["refund", "decline"])
@pytest.mark.parametrize("second", ["refund", "decline"])
def test_a_decision_stands(first: str, second: str) -> None:
    one = desk()
    assert result(one, first, order=CASE.order) == {"ok": first}
    assert result(one, second, order=CASE.order) == {"error": "already decided"}
    assert result(one, first, order=CASE.order) == {"error": "already decided"}


def test_desks_share_nothing() -> None:
    one, other = desk(), desk()
    result(one, "refund", order=CASE.order)
    assert result(other, "decline", order=CASE.order) == {"ok": "decline"}


def test_asking_gives_the_number_and_the_policy_names_every_status() -> None:
    silent = next(case for case in (scenario("train", i) for i in range(50)) if not case.number_given)
    assert silent.order in result(desk(silent), "ask", question="Which order?")["customer"]
    assert result(desk(), "policy") == {"policy": POLICY}
    refund, decline = POLICY.split(". ")
    assert all(status in refund and status not in decline for status in REFUNDABLE)
    assert all(status in decline and status not in refund for status in FINAL)


def test_half_a_character_does_not_break_the_world() -> None:
    one = desk()
    assert result(one, "lookup", order="\ud83d") == {"error": "no such order"}
    assert result(one, "refund", order="\x00';DROP TABLE orders;--") == {"ok": "refund"}
    assert looked_up(one, CASE.order)["status"] == CASE.status


def test_an_unknown_tool_is_an_error_that_leaves_no_trace() -> None:
    one = desk()
    assert result(one, "delete", order=CASE.order) == {"error": "no tool delete"}
    assert one.truth([]).value == 0.0


def test_the_agent_is_shown_no_status() -> None:
    """Neither the scenario's data nor the opening messages tell what the desk knows."""
    for index in range(24):
        case = scenario("heldout", index)
        assert desk_scenario(case).data == {}
        system, user = desk(case).messages
        assert system == {"role": "system", "content": SYSTEM}
        assert user == {"role": "user", "content": case.customer_message}
        assert not any(status in SYSTEM for status in (*REFUNDABLE, *FINAL))


def test_tools_are_openai_schemas() -> None:
    assert [tool["function"]["name"] for tool in TOOLS] == ["lookup", "policy", "ask", "refund", "decline"]
    for tool in TOOLS:
        schema = tool["function"]["parameters"]
        assert tool["type"] == "function"
        assert schema["required"] == list(schema["properties"])


def test_it_never_ends_by_itself_and_closes_twice() -> None:
    one = desk()
    result(one, "refund", order=CASE.order)
    assert one.done is False
    one.close()
    one.close()

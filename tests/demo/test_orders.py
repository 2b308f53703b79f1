"""Scenarios of the order desk: fixed by value, disjoint, balanced, and silent about the status."""

from collections import Counter
from typing import get_args

import numpy as np
import pytest
from scipy import stats

from strop.demo.orders import (
    CLAIMS,
    FINAL,
    REFUNDABLE,
    STATUSES,
    OrderScenario,
    Part,
    by_id,
    scenario,
    scenarios,
)
from strop.errors import InputError

Cases = dict[str, list[OrderScenario]]
PARTS: tuple[Part, ...] = get_args(Part)
SIZES = {"train": 2000, "warmstart": 2500, "judge": 3000, "heldout": 1500}


@pytest.fixture(scope="module")
def every() -> Cases:
    return {part: scenarios(part, size) for part, size in SIZES.items()}


def test_scenarios_are_these_on_every_machine() -> None:
    """Written down once: another value on another machine or version is a broken experiment."""
    pinned = {
        ("train", 0): ("6871", "rug", "late", True, "Hi, I want a refund for order 6871. It never came."),
        ("heldout", 199): (
            "9005",
            "radio",
            "late",
            False,
            "Good morning, I want a refund for my radio. I do not like it.",
        ),
        ("judge", 2999): ("9425", "rug", "late", False, "Hello, I want a refund for my rug. It looks used."),
        ("warmstart", 1234): (
            "3181",
            "clock",
            "used",
            True,
            "Hello, I want a refund for order 3181. It looks used.",
        ),
    }
    for (part, index), expected in pinned.items():
        made = scenario(part, index)
        assert (made.order, made.item, made.status, made.number_given, made.customer_message) == expected


def test_no_two_scenarios_of_any_parts_share_an_order(every: Cases) -> None:
    numbers = [case.order for part in PARTS for case in every[part]]
    assert len(numbers) == len(set(numbers)) == 9000
    assert all(1000 <= int(number) <= 9999 for number in numbers)


def test_ids_are_unique_and_lead_back(every: Cases) -> None:
    ids = [case.scenario_id for part in PARTS for case in every[part]]
    assert len(set(ids)) == len(ids)
    for case in every["train"][:20] + every["heldout"][-20:]:
        assert by_id(case.scenario_id) == case


@pytest.mark.parametrize("part", PARTS)
def test_each_six_hold_each_status_once(part: Part, every: Cases) -> None:
    statuses = [case.status for case in every[part]]
    for start in range(0, len(statuses) - 5, 6):
        assert sorted(statuses[start : start + 6]) == sorted(STATUSES)
    assert len({tuple(statuses[start : start + 6]) for start in range(0, 600, 6)}) > 50


def test_half_of_the_statuses_are_refunded() -> None:
    assert set(REFUNDABLE) | set(FINAL) == set(STATUSES)
    assert len(REFUNDABLE) == len(FINAL) == 3


def test_what_the_customer_says_tells_nothing_of_the_status(every: Cases) -> None:
    """Chi-squared over all 9000: for claim, item, opening and whether the number is given."""
    cases = [case for part in PARTS for case in every[part]]
    for say in (
        lambda case: case.claim,
        lambda case: case.item,
        lambda case: case.opening,
        lambda case: case.number_given,
    ):
        seen = Counter((say(case), case.status) for case in cases)
        words = sorted({word for word, _ in seen})
        table = np.array([[seen[word, status] for status in STATUSES] for word in words])
        assert (table > 0).all()
        assert stats.chi2_contingency(table).pvalue > 0.001


def test_the_first_message_names_the_order_or_the_item_but_no_status(every: Cases) -> None:
    given = 0
    for case in every["train"]:
        named = case.order in case.customer_message
        assert named == case.number_given
        assert named or case.item in case.customer_message
        claimless = case.customer_message.replace(case.claim, "")
        assert not any(status in claimless for status in STATUSES)
        given += named
    assert stats.binomtest(given, len(every["train"]), 0.8).pvalue > 0.001
    assert not any(status in claim.split() for claim in CLAIMS for status in STATUSES if status != "used")


@pytest.mark.parametrize("part", PARTS)
def test_past_the_end_is_refused(part: Part) -> None:
    assert scenario(part, SIZES[part] - 1).scenario_id == f"{part}-{SIZES[part] - 1:04d}"
    for index in (SIZES[part], -1):
        with pytest.raises(InputError, match=f"{part} has {SIZES[part]} scenarios, asked for number {index}"):
            scenario(part, index)


@pytest.mark.parametrize(
    "text", ["", "train", "train-", "train-x", "test-0001", "train--1", "0001", "train-9999"]
)
def test_an_id_of_no_scenario_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="order desk"):
        by_id(text)

"""The scripted clerk, and what a careful reader says of his work beside what the desk knows."""

import json
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from desk_play import BYE, Step, calls, order, play
from hypothesis import given, settings
from hypothesis import strategies as st

from strop.demo.clerk import Demonstration, Habits, demonstrate
from strop.demo.orders import STATUSES, scenario
from strop.demo.verdicts import RIGHT, WRONG, reply, verdict
from strop.judge.prompt import render_prompt
from strop.judge.reply import parse_reply
from strop.seeds import generator
from strop.trajectory.model import Message, Trajectory

ALWAYS: Mapping[str, float] = dict.fromkeys(STATUSES, 1.0)
NEVER: Mapping[str, float] = dict.fromkeys(STATUSES, 0.0)

chance = st.sampled_from([0.0, 0.3, 1.0])
any_habits = st.builds(
    Habits,
    right_by_status=st.fixed_dictionaries(dict.fromkeys(STATUSES, chance)),
    blind=chance,
    policy=chance,
    silent=chance,
    garbled=chance,
    misread=chance,
    stray=chance,
)


def work(index: int, habits: Habits) -> Demonstration:
    return demonstrate(scenario("warmstart", index), habits, generator(index, "clerk"))


def called(messages: Sequence[Message]) -> list[str]:
    return [call["function"]["name"] for m in messages for call in m.get("tool_calls") or ()]


def read_status(messages: Sequence[Message]) -> bool:
    return any('"status"' in str(m["content"]) for m in messages if m["role"] == "tool")


def test_a_faultless_clerk_is_right_wherever_he_could_read_the_status() -> None:
    """Only four timeouts in a row (1 in 625) leave him guessing, which is wrong."""
    done = [work(index, Habits(right_by_status=ALWAYS)) for index in range(200)]
    assert [one.outcome.value for one in done] == [float(read_status(one.messages)) for one in done]
    assert sum(one.outcome.value for one in done) >= 197


@pytest.mark.parametrize(
    "habits",
    [
        Habits(right_by_status=NEVER),
        Habits(right_by_status=ALWAYS, silent=1.0),
        Habits(right_by_status=ALWAYS, garbled=1.0),
        Habits(right_by_status=ALWAYS, stray=1.0),
    ],
    ids=["always wrong", "silent", "garbled", "stray"],
)
def test_each_fault_alone_ends_wrong(habits: Habits) -> None:
    assert {work(index, habits).outcome.value for index in range(60)} == {0.0}


def test_a_blind_clerk_decides_at_the_first_timeout() -> None:
    done = [work(index, Habits(right_by_status=ALWAYS, blind=1.0)) for index in range(120)]
    blind = [one for one in done if not read_status(one.messages)]
    assert 8 <= len(blind) <= 45  # a fifth of 120, give or take four standard deviations
    assert all(called(one.messages).count("lookup") == 1 for one in done)
    assert {one.outcome.value for one in blind} == {0.0}
    assert {one.outcome.value for one in done if one not in blind} == {1.0}


def test_a_clerk_asks_if_and_only_if_he_must_and_reads_the_policy_if_told() -> None:
    for index in range(40):
        names = called(work(index, Habits(right_by_status=ALWAYS, policy=1.0)).messages)
        assert ("ask" in names) == (not scenario("warmstart", index).number_given)
        assert "policy" in names


@given(st.integers(0, 2499), any_habits)
def test_reader_and_desk_agree_on_every_demonstration(index: int, habits: Habits) -> None:
    done = work(index, habits)
    explanation, score = verdict(done.messages)
    assert score == (RIGHT if done.outcome.value else WRONG)
    assert explanation.endswith("right" if done.outcome.value else "wrong")


LOOKUP = calls(("lookup", {"order": "1234"}))
REFUND = calls(("refund", {"order": "1234"}))


@pytest.mark.parametrize(
    ("steps", "read"),
    [
        ([LOOKUP, calls(("decline", "{")), REFUND, BYE], RIGHT),
        ([calls(("lookup", "[")), LOOKUP, REFUND, BYE], RIGHT),
        ([calls(("lookup", {"order": "1234"}), ("refund", {"order": "1234"})), BYE], WRONG),
        ([calls(("lookup", {"order": 1234})), calls(("refund", {"order": 1234})), BYE], RIGHT),
        ([calls(("cancel", {})), LOOKUP, REFUND, BYE], RIGHT),
        (["Hello."], WRONG),
    ],
)
def test_reader_and_desk_agree_beyond_demonstrations(steps: list[Step], read: float) -> None:
    done = play(order("lost"), steps)
    assert verdict(done.messages)[1] == read
    assert done.outcome.value == float(read == RIGHT)


@pytest.mark.parametrize(
    "steps",
    [
        [LOOKUP, REFUND],
        [LOOKUP, REFUND, calls(("refund", {"order": "4321"})), BYE],
    ],
    ids=["the customer was never told", "another order was decided afterwards"],
)
def test_where_the_reader_stops_reading(steps: list[Step]) -> None:
    """He reads to the first decision. No clerk errs after it, so it makes no difference to the judge."""
    done = play(order("lost"), steps)
    assert verdict(done.messages)[1] == RIGHT
    assert done.outcome.value == 0.0


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 2499), any_habits), min_size=1, max_size=6), st.integers(0, 2**32))
def test_a_reply_is_read_back_to_the_same_scores(work_of: list[tuple[int, Habits]], seed: int) -> None:
    group = [
        Trajectory(
            trajectory_id=f"t/{place}", scenario_id="s", group_id="g", messages=work(index, habits).messages
        )
        for place, (index, habits) in enumerate(work_of)
    ]
    prompt = render_prompt(group, "Be just.", np.random.default_rng(seed))
    raw = reply(prompt, group)
    read = parse_reply(raw, list(prompt.shown), "stop", prompt.nonce)
    assert read.failure is None
    assert read.scores is not None
    scores = {prompt.shown[place]: score for place, score in read.scores.items()}
    assert scores == {t.trajectory_id: verdict(t.messages)[1] for t in group}
    assert "tolerant" not in read.flags
    assert list(json.loads(raw)) == [f"scores_{prompt.nonce}"]

"""The desk's truth: the first wrong step of conversations written by hand, and what holds for all."""

import pytest
from desk_play import BYE, Played, Step, calls, order, play
from hypothesis import given
from hypothesis import strategies as st

from strop.demo.orders import STATUSES

LOOKUP = calls(("lookup", {"order": "1234"}))
REFUND = calls(("refund", {"order": "1234"}))
DECLINE = calls(("decline", {"order": "1234"}))
POLICY = calls(("policy", {}))
ASK = calls(("ask", {"question": "Which order?"}))

TIMEOUT = 0.0

# status, whether lookups time out (draws), steps, the first wrong step (None: the case ended right).
# Steps count the agent's messages from 0. Written from the policy by hand.
BY_HAND: dict[str, tuple[str, list[float], list[Step], int | None]] = {
    "refund of a lost order": ("lost", [], [LOOKUP, REFUND, BYE], None),
    "decline of a used order": ("used", [], [LOOKUP, DECLINE, BYE], None),
    "again after a timeout": ("damaged", [TIMEOUT], [LOOKUP, LOOKUP, REFUND, BYE], None),
    "three timeouts": ("late", [TIMEOUT] * 3, [LOOKUP] * 4 + [DECLINE, BYE], None),
    "read the policy first": ("swapped", [], [POLICY, LOOKUP, REFUND, BYE], None),
    "asking needlessly is not wrong": ("intact", [], [ASK, LOOKUP, POLICY, DECLINE, BYE], None),
    "looking up twice is not wrong": ("intact", [], [LOOKUP, LOOKUP, DECLINE, BYE], None),
    "looking up another order first": (
        "intact", [], [calls(("lookup", {"order": "4321"})), LOOKUP, DECLINE, BYE], None,
    ),
    "refund of an intact order": ("intact", [], [LOOKUP, REFUND, BYE], 1),
    "decline of a damaged order": ("damaged", [], [LOOKUP, DECLINE, BYE], 1),
    "wrong, then right is too late": ("lost", [], [LOOKUP, DECLINE, REFUND, BYE], 1),
    "right, then the other is refused": ("lost", [], [LOOKUP, REFUND, DECLINE, BYE], None),
    "blind after a timeout, though it fits": ("lost", [TIMEOUT], [LOOKUP, REFUND, BYE], 1),
    "blind from the start": ("lost", [], [REFUND, BYE], 0),
    "looked up after deciding": ("lost", [], [REFUND, LOOKUP, BYE], 0),
    "looked up and decided in one breath": (
        "lost", [], [calls(("lookup", {"order": "1234"}), ("refund", {"order": "1234"})), BYE], 0,
    ),
    "stray order": ("lost", [], [LOOKUP, calls(("refund", {"order": "4321"})), BYE], 1),
    "stray order, then the right one": (
        "lost", [], [LOOKUP, calls(("refund", {"order": "4321"})), REFUND, BYE], 1,
    ),
    "right order, then a stray one": (
        "lost", [], [LOOKUP, REFUND, calls(("refund", {"order": "4321"})), BYE], 2,
    ),
    "looked up only the stray one": (
        "lost", [], [calls(("lookup", {"order": "4321"})), REFUND, BYE], 1,
    ),
    "no decision": ("lost", [], [LOOKUP, "We will see."], 1),
    "nothing but words": ("lost", [], ["Hello."], 0),
    "never told": ("lost", [], [LOOKUP, REFUND], 1),
    "told nothing": ("lost", [], [LOOKUP, REFUND, " \n"], 2),
    "turns ran out before deciding": ("lost", [TIMEOUT] * 4, [LOOKUP] * 4, 3),
    "malformed call, tried again": (
        "lost", [], [calls(("lookup", '{"order": ')), LOOKUP, REFUND, BYE], None,
    ),
    "arguments that are no object": ("lost", [], [LOOKUP, calls(("refund", '"1234"')), BYE], 2),
    "malformed decision only": ("lost", [], [LOOKUP, calls(("refund", "{order: 1234}")), BYE], 2),
    "malformed decision, then the right one": (
        "lost", [], [LOOKUP, calls(("decline", "{")), REFUND, BYE], None,
    ),
    "unknown tool, then right": ("used", [], [calls(("cancel", {})), LOOKUP, DECLINE, BYE], None),
    "unknown tool instead of a decision": ("used", [], [LOOKUP, calls(("reject", {})), BYE], 2),
    "number as a number": (
        "lost", [], [calls(("lookup", {"order": 1234})), calls(("refund", {"order": 1234})), BYE], None,
    ),
    "two decisions in one message": (
        "lost", [], [LOOKUP, calls(("refund", {"order": "1234"}), ("decline", {"order": "1234"})), BYE], None,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BY_HAND)
def test_first_wrong_step(name: str) -> None:
    status, draws, steps, expected = BY_HAND[name]
    outcome = play(order(status), steps, draws).outcome
    assert outcome.first_wrong_step == expected
    assert outcome.value == (1.0 if expected is None else 0.0)


def test_without_the_number_the_agent_asks_first() -> None:
    case = order("swapped", number_given=False)
    assert play(case, [ASK, LOOKUP, REFUND, BYE]).outcome.first_wrong_step is None


def test_the_turn_limit_ends_an_attempt_before_the_customer_is_told() -> None:
    played = play(order("lost"), [LOOKUP, REFUND, BYE], max_turns=2)
    assert len([m for m in played.messages if m["role"] == "assistant"]) == 2
    assert played.outcome.first_wrong_step == 1


@pytest.mark.parametrize(
    ("steps", "draws", "reward"),
    [
        ([LOOKUP, REFUND, BYE], [], 1.0),
        ([LOOKUP, LOOKUP, REFUND, BYE], [TIMEOUT], 0.98),
        ([LOOKUP, DECLINE, BYE], [], 0.2),
        ([REFUND, BYE], [], 0.1),
        (["Hello."], [], 0.0),
        ([LOOKUP, BYE], [], 0.1),
        ([POLICY] * 12 + [BYE], [], 0.0),
    ],
)
def test_the_hand_written_reward(steps: list[Step], draws: list[float], reward: float) -> None:
    """0.8 for the outcome, 0.1 each for looking up and deciding, less 0.02 a step beyond three."""
    assert play(order("lost"), steps, draws).outcome.reward == pytest.approx(reward)


ANY_CALL = st.one_of(
    st.tuples(
        st.sampled_from(["lookup", "refund", "decline", "policy", "ask", "cancel"]),
        st.sampled_from([{"order": "1234"}, {"order": "4321"}, {}, "{", "[]", "", '{"order": null}']),
    )
)
ANY_STEP = st.one_of(st.lists(ANY_CALL, min_size=1, max_size=3).map(tuple), st.sampled_from(["", "Done."]))


def played(status: str, steps: list[Step], fails: list[bool]) -> Played:
    return play(order(status), [*steps, "Done."], [0.0 if fail else 1.0 for fail in fails])


@given(st.sampled_from(STATUSES), st.lists(ANY_STEP, max_size=6), st.lists(st.booleans(), max_size=6))
def test_right_means_no_wrong_step(status: str, steps: list[Step], fails: list[bool]) -> None:
    done = played(status, steps, fails)
    taken = [message for message in done.messages if message["role"] == "assistant"]
    outcome = done.outcome
    assert (outcome.value == 1.0) == (outcome.first_wrong_step is None)
    assert outcome.value in (0.0, 1.0)
    assert outcome.first_wrong_step is None or 0 <= outcome.first_wrong_step < len(taken)
    assert 0.0 <= outcome.reward <= 1.0
    assert outcome.reward >= 0.5 if outcome.value else outcome.reward <= 0.2


@given(
    st.sampled_from(STATUSES),
    st.lists(ANY_STEP, max_size=6),
    st.lists(st.booleans(), max_size=6),
    st.lists(ANY_STEP, max_size=3),
)
def test_no_later_step_mends_a_wrong_one(
    status: str, steps: list[Step], fails: list[bool], more: list[Step]
) -> None:
    """Where the first wrong step is not the last one taken, whatever had followed leaves it the first."""
    done = played(status, steps, fails)
    wrong = done.outcome.first_wrong_step
    taken = len([message for message in done.messages if message["role"] == "assistant"])
    if wrong is None or wrong == taken - 1:
        return
    again = played(status, [*steps[: wrong + 1], *more], fails)
    assert again.outcome.first_wrong_step == wrong

"""Which message each recorded call wrote, and what a trajectory keeps of a broken attempt."""

from dataclasses import dataclass
from typing import Any

import pytest

from strop.rollout.record import Ending, Identity, assemble
from strop.trajectory.model import Message, Turn

WHO = Identity(trajectory_id="s/train-0000/1", scenario_id="s", group_id="s/train-0000", attempt=1)


@dataclass(frozen=True)
class Call:
    messages: tuple[Message, ...]
    reply: Message
    turn: Turn
    tools: tuple[dict[str, Any], ...] = ()


def turn(sampled: int = 3, finish: str = "stop") -> Turn:
    return Turn(
        prompt_ids=(1, 2),
        sampled_ids=(7,) * sampled,
        logprobs=(-0.5,) * sampled,
        finish_reason=finish,
        message_index=0,
    )


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def said(text: str) -> Message:
    return {"role": "assistant", "content": text}


def asks(name: str, arguments: str, call_id: str = "c1") -> Message:
    call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


RESULT = {"role": "tool", "tool_call_id": "c1", "content": "ok"}


def indices(calls: list[Call], messages: tuple[Message, ...] | None = None) -> list[int]:
    return [t.message_index for t in assemble(WHO, Ending(messages=messages), calls).turns]


def test_turns_point_at_the_messages_they_wrote() -> None:
    first = Call((user("hi"),), asks("look", "{}"), turn())
    second = Call((user("hi"), asks("look", "{}"), RESULT), said("done"), turn())
    got = assemble(WHO, Ending(), [first, second])
    assert [t.message_index for t in got.turns] == [1, 3]
    assert got.messages == (user("hi"), asks("look", "{}"), RESULT, said("done"))
    assert (got.failure, got.unscored, got.score) == (None, None, None)


def test_the_agent_s_own_conversation_counts_and_may_end_with_more() -> None:
    call = Call((user("hi"),), said("a"), turn())
    messages = (user("hi"), said("a"), user("thanks"))
    got = assemble(WHO, Ending(messages=messages), [call])
    assert got.messages == messages
    assert [t.message_index for t in got.turns] == [1]


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ({"role": "assistant", "content": ""}, {"role": "assistant", "content": None}),
        ({"role": "assistant", "content": "a"}, {"role": "assistant", "content": "a", "refusal": None}),
        (
            {"role": "assistant", "content": "a"},
            {"role": "assistant", "content": [{"type": "text", "text": "a"}]},
        ),
        (asks("look", '{"a": 1}'), asks("look", '{"a":1}', call_id="other")),
    ],
)
def test_one_message_in_two_spellings_is_one_message(sent: Message, kept: Message) -> None:
    assert indices([Call((user("hi"),), sent, turn())], (user("hi"), kept)) == [1]


def test_other_branches_get_minus_one() -> None:
    """A sub-agent, a compacted history, a resampled reply."""
    main = Call((user("hi"),), said("a"), turn())
    sub = Call((user("sub task"),), said("a"), turn())
    resampled = Call((user("hi"),), said("b"), turn())
    compacted = Call((user("summary"), user("go on")), said("c"), turn())
    messages = (user("hi"), said("a"), user("go on"), said("c"))
    assert indices([main, sub, resampled, compacted], messages) == [1, -1, -1, -1]


def test_a_failure_keeps_its_turns_and_is_unscored() -> None:
    got = assemble(
        WHO, Ending(failure="agent raised: ValueError: x"), [Call((user("hi"),), said("a"), turn())]
    )
    assert got.failure == got.unscored == "agent raised: ValueError: x"
    assert got.messages == (user("hi"), said("a"))
    assert len(got.turns) == 1


def test_no_call_is_a_failure_even_with_messages() -> None:
    got = assemble(WHO, Ending(messages=(user("hi"),)), [])
    assert got.failure == got.unscored == "no model call"


def test_an_earlier_failure_is_not_hidden_by_no_call() -> None:
    assert (
        assemble(WHO, Ending(failure="deadline: no end after 1 s"), []).failure
        == "deadline: no end after 1 s"
    )


def test_counts_and_identity() -> None:
    calls = [Call((user("hi"),), said("a"), turn(3)), Call((user("hi"),), said("b"), turn(5, "length"))]
    got = assemble(WHO, Ending(), calls)
    assert got.metrics == {"turns": 2.0, "sampled_tokens": 8.0, "truncated_turns": 1.0}
    assert (got.trajectory_id, got.group_id, got.metadata) == (
        "s/train-0000/1",
        "s/train-0000",
        {"attempt": 1},
    )

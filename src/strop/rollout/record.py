"""From recorded model calls to a trajectory. Pure."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from strop.inference.template import text_of
from strop.rollout.sessions import RecordedCall
from strop.trajectory.model import Message, Trajectory, Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Where a trajectory belongs. `attempt` counts from 0 inside the group."""

    trajectory_id: str
    scenario_id: str
    group_id: str
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How an agent ended: the conversation it returned, if it did, or why it failed."""

    messages: Sequence[Message] | None = None
    failure: str | None = None


def assemble(identity: Identity, ending: Ending, calls: Sequence[RecordedCall]) -> Trajectory:
    """The trajectory of one attempt; a failed one keeps the turns it got to.

    The conversation is the agent's if it returned one, else the last recorded call with its reply.
    Each turn points at the assistant message it wrote: the one at its prompt's length, where prompt
    and reply are what the conversation holds up to there. Turns of other branches (a compacted
    history, a sub-agent) get -1.
    """
    failure = ending.failure or (None if calls else "no model call")
    messages = ending.messages if ending.messages is not None else _last_conversation(calls)
    turns = tuple(replace(call.turn, message_index=_index(call, messages)) for call in calls)
    return Trajectory(
        trajectory_id=identity.trajectory_id,
        scenario_id=identity.scenario_id,
        group_id=identity.group_id,
        messages=tuple(messages),
        tools=tuple(calls[-1].tools) if calls else (),
        turns=turns,
        failure=failure,
        unscored=failure,
        metrics=_metrics(turns),
        metadata={"attempt": identity.attempt},
    )


def _last_conversation(calls: Sequence[RecordedCall]) -> Sequence[Message]:
    return (*calls[-1].messages, calls[-1].reply) if calls else ()


def _index(call: RecordedCall, messages: Sequence[Message]) -> int:
    written = [_essence(message) for message in (*call.messages, call.reply)]
    held = [_essence(message) for message in messages[: len(written)]]
    return len(call.messages) if written == held else -1


def _essence(message: Message) -> tuple[Any, ...]:
    """What makes two spellings of one message the same: role, text, and what is called with what.

    Absent, null and empty content are alike, and so are ids of calls and the spacing of arguments.
    """
    calls = [_call_essence(call) for call in message.get("tool_calls") or ()]
    return message.get("role"), text_of(message.get("content")), calls


def _call_essence(call: Mapping[str, Any]) -> tuple[Any, Any]:
    function = call.get("function") or {}
    arguments = function.get("arguments") or ""
    try:
        return function.get("name"), {"json": json.loads(arguments)}
    except (TypeError, ValueError):
        return function.get("name"), arguments


def _metrics(turns: Sequence[Turn]) -> Mapping[str, float]:
    return {
        "turns": float(len(turns)),
        "sampled_tokens": float(sum(len(turn.sampled_ids) for turn in turns)),
        "truncated_turns": float(sum(turn.finish_reason == "length" for turn in turns)),
    }

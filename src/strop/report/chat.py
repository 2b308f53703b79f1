"""Attempts as conversations for the page: plain values, nothing is escaped or marked up here."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from strop.trajectory.model import Message, Trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class Utterance:
    """One message: its role, its text, and its tool calls as `name(argument = value)`.

    `step` counts assistant messages from 0, None for other roles.
    """

    role: str
    text: str
    calls: tuple[str, ...] = ()
    step: int | None = None


def conversation(trajectory: Trajectory, skip: int = 0) -> list[Utterance]:
    """The messages from `skip` on."""
    spoken, step = [], 0
    for message in trajectory.messages:
        own = message.get("role") == "assistant"
        calls = tuple(_call(call) for call in message.get("tool_calls") or ())
        role = str(message.get("role", "unknown"))
        spoken.append(
            Utterance(role=role, text=_text(message.get("content")), calls=calls, step=step if own else None)
        )
        step += own
    return spoken[skip:]


def shared_opening(attempts: Sequence[Trajectory]) -> int:
    """How many first messages all attempts have in common, never counting one the agent wrote."""
    shared = 0
    for column in zip(*(t.messages for t in attempts), strict=False):
        if column[0].get("role") == "assistant" or any(_bare(m) != _bare(column[0]) for m in column):
            break
        shared += 1
    return shared


def _bare(message: Message) -> tuple[str, str]:
    return str(message.get("role")), _text(message.get("content"))


def _text(content: Any) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, Sequence) else [content]
    return "\n".join(str(p.get("text", p)) if isinstance(p, Mapping) else str(p) for p in parts)


def _call(call: Mapping[str, Any]) -> str:
    function = call.get("function") or {}
    arguments = function.get("arguments") or ""
    try:
        read = json.loads(arguments) if isinstance(arguments, str) else arguments
    except ValueError:
        read = None
    if isinstance(read, Mapping):
        inside = ", ".join(f"{k} = {json.dumps(v, ensure_ascii=False, default=str)}" for k, v in read.items())
    else:
        inside = str(arguments)
    return f"{function.get('name', 'unnamed')}({inside})"

"""Trajectories in the plain text format that Progress Advantage (arXiv 2606.26080) was measured in.

No chat template: messages follow one another as `[role]: content`, each on a new line, and each is cut into
tokens by itself. An assistant's whole message is graded, its tag and line break included.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from strop.errors import InputError
from strop.grader.spans import Kind
from strop.trajectory.model import Message, Trajectory
from strop.trajectory.tokens import Row

Encode = Callable[[str], Sequence[int]]
SILENT = "[assistant action]"
_TAG = re.compile(r"\n?\[[^\]]*\]: ")
_CALL = re.compile(r"^tool_call\(([^,\n]*), (.*)\)$", re.MULTILINE)
_NAME: Kind = "tool_name"
_ARGUMENTS: Kind = "tool_arguments"


def plain_text(message: Message, *, first: bool, every: bool = False) -> str:
    """One message as it stands in the text; "" where it has nothing to say and `every` message is graded."""
    separator = "" if first else "\n"
    role, content = message["role"], _content(message)
    if every:
        return f"{separator}[{role}]: {content}" if content else ""
    if role != "assistant":
        return f"{separator}[{role}]: {content}"
    calls = "\n".join(map(_call, message.get("tool_calls") or ()))
    said = f"{content}\n{calls}" if content or calls else SILENT
    return f"{separator}[assistant]: {said}"


def plain_row(trajectory: Trajectory, encode: Encode, bos: Sequence[int], *, every: bool = False) -> Row:
    """The trajectory as one row: what is graded is masked, `turn_of` is the number of the message.

    `encode` cuts one message's text, `bos` stands before all. Graded are the assistant's messages, or
    with `every` all that say anything but a first one by "human". The very first token has nothing
    before it and is never graded. Raises InputError where nothing is left to grade.
    """
    ids, turn_of = list(bos), [-1] * len(bos)
    for number, message in enumerate(trajectory.messages):
        text = plain_text(message, first=number == 0, every=every)
        cut = list(encode(text)) if text else []
        acts = _acts(number, message, every)
        ids += cut
        turn_of += [number if acts else -1] * len(cut)
    turn_of[:1] = [-1] * len(turn_of[:1])
    where = np.array(turn_of, dtype=np.int64)
    if not (where >= 0).any():
        raise InputError("no message of the assistant, so nothing to grade")
    return Row(
        trajectory_id=trajectory.trajectory_id,
        ids=np.array(ids, dtype=np.int64),
        mask=where >= 0,
        logprobs=np.zeros(len(ids)),
        turn_of=where,
    )


def plain_kinds(text: str) -> list[Kind]:
    """One kind for each character of a graded message: its tag is template, as is all of a call but the
    tool's name and its arguments; the rest is prose."""
    kinds: list[Kind] = ["prose"] * len(text)
    tag = _TAG.match(text)
    if tag:
        kinds[: tag.end()] = ["template"] * tag.end()
    for call in _CALL.finditer(text):
        kinds[call.start() : call.end()] = ["template"] * (call.end() - call.start())
        for group, kind in ((1, _NAME), (2, _ARGUMENTS)):
            kinds[call.start(group) : call.end(group)] = [kind] * len(call[group])
    return kinds


def _acts(number: int, message: Message, every: bool) -> bool:
    if every:
        return not (number == 0 and message["role"] == "human")
    return bool(message["role"] == "assistant")


def _content(message: Message) -> str:
    content = message.get("content")
    if isinstance(content, str) or content is None:
        return content or ""
    return "".join(str(part.get("text") or "") for part in content if isinstance(part, Mapping))


def _call(call: Mapping[str, Any]) -> str:
    function = call.get("function") or call
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        # A broken attempt at JSON stays as the model wrote it.
        with suppress(ValueError):
            arguments = json.loads(arguments)
    return f"tool_call({function.get('name')}, {arguments!r})"

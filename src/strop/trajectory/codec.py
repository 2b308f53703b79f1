"""Trajectory files: JSON Lines, one trajectory a line, read and written one line at a time.

Only `messages` (OpenAI chat format) is required of a line, so any log of chats is valid input.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from strop.errors import InputError
from strop.trajectory.fields import Place
from strop.trajectory.lines import numbered_lines, parse_object, write_objects
from strop.trajectory.model import Message, Trajectory, Turn
from strop.trajectory.tokens import check_turn

SCHEMA_VERSION = 1

_FIELDS = frozenset(
    {"trajectory_id", "scenario_id", "group_id", "messages", "tools", "turns", "score", "unscored"}
    | {"failure", "truth", "first_wrong_step", "metrics", "metadata", "schema"}
)


def read(path: Path | str) -> Iterator[Trajectory]:
    """The trajectories of a JSONL file, one at a time in constant memory; blank lines are skipped.

    Raises InputError as `file:line: what; what to do` at the first line that cannot be used.
    """
    for line, text in numbered_lines(Path(path)):
        where = f"{path}:{line}"
        yield from_dict(parse_object(text, where=where), where=where, line=line)


def write(path: Path | str, trajectories: Iterable[Trajectory]) -> None:
    """Replace `path` by a file of these trajectories, one a line, ASCII only.

    All or nothing: where a trajectory is refused (InputError) or the disk is full (StropError) the
    old file stays. Anything that `write` accepts `read` gives back equal.
    """
    write_objects(Path(path), (to_dict(trajectory) for trajectory in trajectories))


def to_dict(trajectory: Trajectory) -> dict[str, Any]:
    """The trajectory as a JSON object; absent optional fields are left out.

    Raises InputError for what no file may hold: see `from_dict`.
    """
    at = Place(f"trajectory {trajectory.trajectory_id}")
    _check(trajectory, at)
    fields: dict[str, Any] = {
        "schema": SCHEMA_VERSION,
        "trajectory_id": trajectory.trajectory_id,
        "scenario_id": trajectory.scenario_id,
        "group_id": trajectory.group_id,
        "messages": at.plain(trajectory.messages, "messages"),
        "tools": at.plain(trajectory.tools, "tools"),
        "turns": [_turn_to_dict(turn) for turn in trajectory.turns],
    }
    for name in ("score", "unscored", "failure", "truth", "first_wrong_step"):
        if (value := getattr(trajectory, name)) is not None:
            fields[name] = value
    if trajectory.metrics:
        fields["metrics"] = at.numbers({"metrics": trajectory.metrics}, "metrics")
    if trajectory.metadata:
        fields["metadata"] = at.plain(trajectory.metadata, "metadata")
    return fields


def from_dict(fields: Mapping[str, Any], *, where: str, line: int = 0) -> Trajectory:
    """A trajectory from a JSON object; `where` opens every error, `line` goes into a made-up id.

    Missing ids are made from what is there, the same every time: `trajectory_id` from the line
    number and the content hash, `scenario_id` from the messages before the first assistant message,
    `group_id` is the scenario's. Fields that the format does not know are kept in `metadata`.
    Booleans are read as 0 and 1 where a number is due. Raises InputError for messages that are
    missing, without a role, or empty without a `failure`, both `score` and `unscored`, a number that
    is not finite or out of range, ids and log-probs of different length, a wrong type, or the schema
    of a newer strop.
    """
    at = Place(where)
    _check_schema(fields, at)
    messages = _messages(fields, at)
    tools = tuple(at.plain(at.objects(fields, "tools"), "tools"))
    trajectory_id, scenario_id, group_id = _ids(fields, at, messages, tools, line)
    extra = {name: value for name, value in fields.items() if name not in _FIELDS}
    trajectory = Trajectory(
        trajectory_id=trajectory_id,
        scenario_id=scenario_id,
        group_id=group_id,
        messages=messages,
        tools=tools,
        turns=_turns(fields, at),
        score=at.number(fields, "score"),
        unscored=at.text(fields, "unscored"),
        failure=at.text(fields, "failure"),
        truth=at.number(fields, "truth"),
        first_wrong_step=at.whole(fields, "first_wrong_step"),
        metrics=at.numbers(fields, "metrics"),
        metadata=at.plain(extra, "") | at.mapping(fields, "metadata"),
    )
    _check(trajectory, at)
    return trajectory


def content_hash(trajectory: Trajectory) -> str:
    """SHA-256, in hex, of the canonical JSON of messages and tools: equal hashes, equal behaviour shown."""
    return _digest({"messages": trajectory.messages, "tools": trajectory.tools})


def _check_schema(fields: Mapping[str, Any], at: Place) -> None:
    version = at.whole(fields, "schema")
    if version is None:
        return
    if version > SCHEMA_VERSION:
        at.refuse(f"schema {version} is newer than this strop reads ({SCHEMA_VERSION}); upgrade strop")
    if version < 1:
        at.refuse(f"schema {version} does not exist; leave it out or write {SCHEMA_VERSION}")


def _messages(fields: Mapping[str, Any], at: Place) -> tuple[Message, ...]:
    if "messages" not in fields:
        at.refuse("no messages; a line needs `messages`, a list in OpenAI's chat format")
    return tuple(at.plain(at.objects(fields, "messages"), "messages"))


def _turns(fields: Mapping[str, Any], at: Place) -> tuple[Turn, ...]:
    return tuple(_turn(turn, at.inside(f"turns[{i}]")) for i, turn in enumerate(at.objects(fields, "turns")))


def _turn(fields: Mapping[str, Any], at: Place) -> Turn:
    logprobs = fields.get("logprobs")
    if not isinstance(logprobs, list | tuple):
        at.refuse("logprobs must be a list of numbers, one for each sampled id")
    message_index = at.whole(fields, "message_index")
    if message_index is None:
        at.refuse("no message_index; say which message this turn wrote, from 0")
    temperature = at.number(fields, "temperature")
    return Turn(
        prompt_ids=at.token_ids(fields, "prompt_ids"),
        sampled_ids=at.token_ids(fields, "sampled_ids"),
        logprobs=tuple(at.finite(value, f"logprobs[{i}]") for i, value in enumerate(logprobs)),
        finish_reason=at.text(fields, "finish_reason") or "stop",
        message_index=message_index,
        policy_version=at.whole(fields, "policy_version") or 0,
        temperature=1.0 if temperature is None else temperature,
    )


def _turn_to_dict(turn: Turn) -> dict[str, Any]:
    return {
        "prompt_ids": list(turn.prompt_ids),
        "sampled_ids": list(turn.sampled_ids),
        "logprobs": [float(value) for value in turn.logprobs],
        "finish_reason": turn.finish_reason,
        "message_index": turn.message_index,
        "policy_version": turn.policy_version,
        "temperature": turn.temperature,
    }


def _check(trajectory: Trajectory, at: Place) -> None:
    """What holds of every trajectory in a file, whichever way it goes."""
    if not trajectory.messages and trajectory.failure is None:
        at.refuse("messages is empty; only an attempt with a `failure` may have said nothing")
    for i, message in enumerate(trajectory.messages):
        if not isinstance(message.get("role"), str) or not message["role"]:
            at.refuse(f"messages[{i}] has no role; give system, user, assistant or tool")
    for name in ("trajectory_id", "scenario_id", "group_id"):
        if not getattr(trajectory, name):
            at.refuse(f"{name} is empty; leave it out or give text")
    if trajectory.score is not None and trajectory.unscored is not None:
        at.refuse("both score and unscored; a trajectory has one of them")
    for name in ("score", "truth"):
        value = getattr(trajectory, name)
        if value is not None and not 0 <= value <= 1:
            at.refuse(f"{name} is {value}; it must lie in [0, 1]")
    if trajectory.first_wrong_step is not None and trajectory.first_wrong_step < 0:
        at.refuse("first_wrong_step is negative; it counts assistant messages from 0")
    for i, turn in enumerate(trajectory.turns):
        _check_turn(turn, len(trajectory.messages), at.inside(f"turns[{i}]"))


def _check_turn(turn: Turn, messages: int, at: Place) -> None:
    try:
        check_turn(turn)
    except InputError as error:
        raise InputError(f"{at.where}: {error}") from error
    if not -1 <= turn.message_index < messages:
        at.refuse(
            f"message_index {turn.message_index}, but there are {messages} messages; "
            "count from 0, -1 for a turn that wrote none of them"
        )


def _ids(
    fields: Mapping[str, Any],
    at: Place,
    messages: Sequence[Message],
    tools: Sequence[Mapping[str, Any]],
    line: int,
) -> tuple[str, str, str]:
    """Trajectory, scenario and group id: as given, made up where absent."""
    trajectory_id = at.identifier(fields, "trajectory_id")
    if trajectory_id is None:
        trajectory_id = f"t{line}-{_digest({'messages': messages, 'tools': tools})[:16]}"
    scenario_id = at.identifier(fields, "scenario_id")
    if scenario_id is None:
        scenario_id = f"s-{_digest(_opening(messages))[:16]}"
    group_id = at.identifier(fields, "group_id")
    return trajectory_id, scenario_id, scenario_id if group_id is None else group_id


def _opening(messages: Sequence[Message]) -> list[Message]:
    first = next((i for i, message in enumerate(messages) if message.get("role") == "assistant"), None)
    return list(messages[:first])


def _digest(value: Any) -> str:
    plain = Place("content").plain(value, "")
    return hashlib.sha256(json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()).hexdigest()

"""Which assistant messages a demonstration teaches, and how much each counts. Pure."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from strop.errors import InputError
from strop.trajectory.model import Message

Learn = Literal["all", "last"]
TRAIN, WEIGHT = "train", "weight"


def loss_weights(messages: Sequence[Message], learn: Learn = "all") -> dict[int, float]:
    """Weight above 0 of the loss of each assistant message that is learned, by its index.

    A message decides for itself by `train`, true or false, or by `weight`, a number from 0 (not learned).
    Where it says nothing `learn` decides: 1 for every assistant message, or for the last one only.
    Raises InputError for both fields in one message, for another value, and for a message that is to be
    learned but is not the assistant's.
    """
    places = [index for index, message in enumerate(messages) if message["role"] == "assistant"]
    by_default = places if learn == "all" else places[-1:]
    weights = {}
    for index, message in enumerate(messages):
        own = _own_weight(message, f"messages[{index}]")
        if own and message["role"] != "assistant":
            raise InputError(
                f"messages[{index}] is of role {message['role']}; only the assistant's are learned"
            )
        weights[index] = float(index in by_default) if own is None else own
    return {index: weight for index, weight in weights.items() if weight > 0}


def shown(messages: Sequence[Message]) -> list[Message]:
    """The messages as a template is to see them: without those fields, arguments of calls as text.

    Raises InputError for a tool call without a name or with arguments that are neither text nor an object.
    """
    return [_shown(message, f"messages[{index}]") for index, message in enumerate(messages)]


def _own_weight(message: Message, where: str) -> float | None:
    train, weight = message.get(TRAIN), message.get(WEIGHT)
    if train is not None and weight is not None:
        raise InputError(f"{where} has both {TRAIN} and {WEIGHT}; give one of them")
    if train is not None:
        if not isinstance(train, bool):
            raise InputError(f"{where}: {TRAIN} is {train!r}; give true or false")
        return float(train)
    if weight is None:
        return None
    if isinstance(weight, bool) or not isinstance(weight, int | float) or weight < 0:
        raise InputError(f"{where}: {WEIGHT} is {weight!r}; give a number from 0")
    return float(weight)


def _shown(message: Message, where: str) -> Message:
    kept = {key: value for key, value in message.items() if key not in (TRAIN, WEIGHT)}
    calls = message.get("tool_calls")
    if not calls:
        return kept
    if not isinstance(calls, list | tuple):
        raise InputError(f"{where}: tool_calls must be a list")
    return {**kept, "tool_calls": [_call(call, f"{where}: tool_calls[{i}]") for i, call in enumerate(calls)]}


def _call(call: Any, where: str) -> Mapping[str, Any]:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise InputError(f"{where}: no function with a name")
    arguments = function.get("arguments", "{}")
    if isinstance(arguments, Mapping):
        # Some logs keep the object itself; OpenAI's format has its text.
        arguments = json.dumps(arguments, ensure_ascii=False)
    if not isinstance(arguments, str):
        raise InputError(f"{where}: arguments must be text or an object")
    return {**call, "function": {**function, "arguments": arguments}}

"""The door for what agents return: a conversation in OpenAI's format, or an error that says why not."""

import json
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from strop.errors import InputError
from strop.inference.template import text_of
from strop.trajectory.model import Message

ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})


def conversation(returned: object) -> tuple[Message, ...] | None:
    """The messages an agent returned, as plain JSON objects; None where it returned None.

    Message objects of the OpenAI SDK are taken as they are. Raises InputError for anything else
    than a list of messages.
    """
    if returned is None:
        return None
    if not isinstance(returned, list | tuple) or not returned:
        raise InputError(f"agent returned {_kind(returned)}, not a list of messages or None")
    return tuple(_message(index, item) for index, item in enumerate(returned))


def _message(index: int, item: object) -> Message:
    message = item.model_dump(exclude_none=True) if isinstance(item, BaseModel) else item
    if not isinstance(message, Mapping) or message.get("role") not in ROLES:
        raise InputError(f"agent returned messages of which number {index} is {_kind(item)} without a role")
    text_of(message.get("content"))
    try:
        plain: dict[str, Any] = json.loads(json.dumps(dict(message), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise InputError(f"agent returned messages of which number {index} is not JSON: {error}") from None
    return plain


def _kind(value: object) -> str:
    return "an empty list" if isinstance(value, list | tuple) and not value else type(value).__name__

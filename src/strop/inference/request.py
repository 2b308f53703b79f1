"""Read the body of POST /chat/completions into a checked value, in OpenAI's vocabulary."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from strop.inference.api_errors import ApiError
from strop.trajectory.model import Message

_ROLES = {"system", "developer", "user", "assistant", "tool"}
_MAX_CHOICES = 128
_NEUTRAL: dict[str, tuple[object, ...]] = {
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "repetition_penalty": (1,),
    "top_k": (0, -1),
    "min_p": (0,),
    "logit_bias": ({},),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "functions": ([],),
    "function_call": ("none",),
}
"""Parameters that would change what is sampled and cannot be honoured: only these values pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """One request for chat completions.

    `messages` are normalised: text content as one string, `developer` as `system`, known keys only.
    `max_tokens` None means up to the end of the context. `calls_allowed` is tool_choice "auto": with
    "none" the tools are still shown to the model, but nothing is read as a call.
    """

    model: str
    messages: tuple[Message, ...]
    tools: tuple[Mapping[str, Any], ...] = ()
    calls_allowed: bool = True
    parallel_calls: bool = True
    temperature: float = 1.0
    top_p: float = 1.0
    max_tokens: int | None = None
    n: int = 1
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stream: bool = False
    include_usage: bool = False
    logprobs: bool = False
    top_logprobs: int = 0


def read_request(body: bytes) -> ChatRequest:
    """The request in a JSON body. Raises ApiError (400) that names the parameter."""
    fields = _object(body)
    _refuse_unsupported(fields)
    tools = _tools(fields)
    stream = _flag(fields, "stream", False)
    return ChatRequest(
        model=_required_text(fields, "model"),
        messages=_messages(fields),
        tools=tools,
        calls_allowed=bool(tools) and _tool_choice(fields) == "auto",
        parallel_calls=_flag(fields, "parallel_tool_calls", True),
        temperature=_number(fields, "temperature", 1.0, 0.0, 2.0),
        top_p=_number(fields, "top_p", 1.0, 0.0, 1.0),
        max_tokens=_max_tokens(fields),
        n=_integer(fields, "n", 1, _MAX_CHOICES) or 1,
        seed=_integer(fields, "seed", None, None),
        stop=_stop(fields),
        stream=stream,
        include_usage=stream and _include_usage(fields),
        logprobs=_flag(fields, "logprobs", False),
        top_logprobs=_top_logprobs(fields),
    )


def _object(body: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ApiError(f"the request body is not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise ApiError(f"the request body must be a JSON object, not {_kind(fields)}")
    return fields


def _refuse_unsupported(fields: Mapping[str, Any]) -> None:
    for name, passes in _NEUTRAL.items():
        value = fields.get(name)
        if value is not None and value not in passes:
            raise ApiError(f"{name} is not supported here; leave it out", param=name)


def _messages(fields: Mapping[str, Any]) -> tuple[Message, ...]:
    listed = fields.get("messages")
    if not isinstance(listed, list) or not listed:
        raise ApiError("messages must be a list with at least one message", param="messages")
    return tuple(_message(message, f"messages[{index}]") for index, message in enumerate(listed))


def _message(message: object, where: str) -> Message:
    if not isinstance(message, dict):
        raise ApiError(f"{where} must be an object, not {_kind(message)}", param=where)
    role = message.get("role")
    if role not in _ROLES:
        raise ApiError(f"{where}.role must be one of {', '.join(sorted(_ROLES))}", param=f"{where}.role")
    plain: dict[str, Any] = {"role": "system" if role == "developer" else role}
    plain["content"] = _content(message.get("content"), f"{where}.content", optional=role == "assistant")
    if role == "tool":
        plain["tool_call_id"] = _text(message.get("tool_call_id"), f"{where}.tool_call_id")
    if message.get("name") is not None:
        plain["name"] = _text(message["name"], f"{where}.name")
    if role == "assistant" and message.get("tool_calls"):
        plain["tool_calls"] = _calls(message["tool_calls"], f"{where}.tool_calls")
    return plain


def _content(content: object, where: str, *, optional: bool) -> str | None:
    if content is None and optional:
        return None
    if isinstance(content, list):
        return "".join(_part(part, f"{where}[{index}]") for index, part in enumerate(content))
    return _text(content, where)


def _part(part: object, where: str) -> str:
    kind = part.get("type") if isinstance(part, dict) else None
    if not isinstance(part, dict) or not isinstance(kind, str):
        raise ApiError(f"{where} must be an object with a type", param=where)
    if kind not in ("text", "refusal"):
        raise ApiError(f"{where} is of type {kind!r}; only text can be read here", param=where)
    return _text(part.get(kind), f"{where}.{kind}")


def _calls(calls: object, where: str) -> list[dict[str, Any]]:
    if not isinstance(calls, list):
        raise ApiError(f"{where} must be a list, not {_kind(calls)}", param=where)
    return [_call(call, f"{where}[{index}]") for index, call in enumerate(calls)]


def _call(call: object, where: str) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(call, dict) or not isinstance(function, dict):
        raise ApiError(f"{where} must be an object with a function", param=where)
    name = _text(function.get("name"), f"{where}.function.name")
    arguments = _text(function.get("arguments"), f"{where}.function.arguments")
    return {
        "id": _text(call.get("id"), f"{where}.id"),
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def _tools(fields: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    tools = fields.get("tools")
    if tools is None:
        return ()
    if not isinstance(tools, list):
        raise ApiError(f"tools must be a list, not {_kind(tools)}", param="tools")
    for index, tool in enumerate(tools):
        function = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(function, dict) or tool.get("type") != "function":
            raise ApiError(f"tools[{index}] must be of type 'function' and hold one", param=f"tools[{index}]")
        _text(function.get("name"), f"tools[{index}].function.name")
    return tuple(tools)


def _tool_choice(fields: Mapping[str, Any]) -> str:
    choice = fields.get("tool_choice")
    if choice is None:
        return "auto"
    if choice not in ("none", "auto"):
        raise ApiError(
            "tool_choice must be 'auto' or 'none'; a call cannot be forced here", param="tool_choice"
        )
    return str(choice)


def _max_tokens(fields: Mapping[str, Any]) -> int | None:
    newer = _integer(fields, "max_completion_tokens", None, None)
    older = _integer(fields, "max_tokens", None, None)
    limit = older if newer is None else newer
    if limit is not None and limit < 1:
        raise ApiError("max_tokens must be at least 1", param="max_tokens")
    return limit


def _top_logprobs(fields: Mapping[str, Any]) -> int:
    top = _integer(fields, "top_logprobs", 0, 20) or 0
    if top and not _flag(fields, "logprobs", False):
        raise ApiError("top_logprobs needs logprobs to be true", param="top_logprobs")
    return top


def _stop(fields: Mapping[str, Any]) -> tuple[str, ...]:
    stop = fields.get("stop")
    if stop is None:
        return ()
    strings = [stop] if isinstance(stop, str) else stop
    if (
        not isinstance(strings, list)
        or len(strings) > 4
        or not all(isinstance(s, str) and s for s in strings)
    ):
        raise ApiError("stop must be a string or a list of up to 4 strings, none of them empty", param="stop")
    return tuple(strings)


def _include_usage(fields: Mapping[str, Any]) -> bool:
    options = fields.get("stream_options")
    if options is None:
        return False
    if not isinstance(options, dict):
        raise ApiError(f"stream_options must be an object, not {_kind(options)}", param="stream_options")
    return _flag(options, "include_usage", False)


def _required_text(fields: Mapping[str, Any], name: str) -> str:
    return _text(fields.get(name), name)


def _text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise ApiError(f"{where} must be a string, not {_kind(value)}", param=where)
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise ApiError(f"{where} is not valid Unicode: {error.reason}", param=where) from error
    return value


def _flag(fields: Mapping[str, Any], name: str, default: bool) -> bool:
    value = fields.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise ApiError(f"{name} must be true or false, not {_kind(value)}", param=name)
    return value


def _number(fields: Mapping[str, Any], name: str, default: float, low: float, high: float) -> float:
    value = fields.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ApiError(f"{name} must be a number, not {_kind(value)}", param=name)
    if not low <= value <= high:
        raise ApiError(f"{name} must be between {low:g} and {high:g}, not {value}", param=name)
    return float(value)


def _integer(fields: Mapping[str, Any], name: str, default: int | None, high: int | None) -> int | None:
    value = fields.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int):
        raise ApiError(f"{name} must be an integer, not {_kind(value)}", param=name)
    if high is not None and not (default or 0) <= value <= high:
        raise ApiError(f"{name} must be between {default or 0} and {high}, not {value}", param=name)
    return value


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")

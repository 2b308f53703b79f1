"""An attempt's messages as compact plain text for a judge: whitelisted fields only, text made harmless.

    user: My cup arrived broken.
    call lookup_order {"order_id": "4821"}
    result {"status": "damaged"}
    assistant: Refunded.

A line that starts at the margin was written by the renderer; further lines of one message's text
are indented by two spaces, so that agent text cannot pose as another message.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from strop.trajectory.model import Message


def harmless(text: str) -> str:
    """`text` as valid Unicode that can open or close no block and start no line at the margin.

    Lone surrogates become U+FFFD, `<` becomes `&lt;`, every kind of line break becomes a newline
    with two spaces after it.
    """
    return "\n  ".join(valid_unicode(text).replace("<", "&lt;").splitlines())


def valid_unicode(text: str) -> str:
    """`text` with every lone surrogate replaced by U+FFFD, so that it can be encoded as UTF-8."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def render_message(message: Message) -> str:
    """One message as text: content, tool calls and tool results; ids, log-probs and all else are left out."""
    role = str(message.get("role", ""))
    content = _content(message.get("content"))
    if role in ("tool", "function"):
        return f"result {harmless(content)}".rstrip()
    calls = [_call(call) for call in _calls(message)]
    said = [f"{_one_line(role)}: {harmless(content)}".rstrip()] if content or not calls else []
    return "\n".join(said + calls)


def common_prefix(attempts: Sequence[Sequence[str]]) -> int:
    """How many leading messages all attempts share, compared by their rendered text."""
    shared = 0
    for column in zip(*attempts, strict=False):
        if any(text != column[0] for text in column):
            break
        shared += 1
    return shared


def _content(content: Any) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, Sequence):
        return "\n".join(_part(part) for part in content)
    return json.dumps(content, ensure_ascii=False, default=str)


def _part(part: Any) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, Mapping):
        text = part.get("text")
        return text if isinstance(text, str) else f"[{part.get('type', 'part')}]"
    return "[part]"


def _calls(message: Message) -> list[Mapping[str, Any]]:
    listed = message.get("tool_calls") or ()
    functions = [call.get("function") for call in listed if isinstance(call, Mapping)]
    functions.append(message.get("function_call"))
    return [function for function in functions if isinstance(function, Mapping)]


def _call(function: Mapping[str, Any]) -> str:
    arguments = function.get("arguments", "")
    return f"call {_one_line(str(function.get('name', '')))} {harmless(_arguments(arguments))}".rstrip()


def _arguments(arguments: Any) -> str:
    """Arguments with JSON's own spacing where they are JSON, otherwise as the agent wrote them."""
    if not isinstance(arguments, str):
        return json.dumps(arguments, ensure_ascii=False, default=str)
    try:
        return json.dumps(json.loads(arguments), ensure_ascii=False)
    except (ValueError, RecursionError):
        return arguments


def _one_line(name: str) -> str:
    return " ".join(harmless(name).split()) or "unnamed"

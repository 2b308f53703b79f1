"""An attempt's messages as compact plain text for a judge: whitelisted fields only, text made harmless.

    user: My cup arrived broken.
    call lookup_order {"order_id": "4821"}
    result {"status": "damaged"}
    assistant: Refunded.

A line that starts at the margin was written by the renderer; further lines of one message's text
are indented by two spaces, so that agent text cannot pose as another message. A `<` that is not
`&lt;` is the renderer's too: it stands only in marks such as `IMAGE`.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from strop.judge.view import View
from strop.trajectory.model import Message

IMAGE = "<image>"
"""Where an image that is passed on stood in the text. Agent text cannot hold it."""

NEXT_LINE = "\n  "
NAME_CHARS = 64

_RESULT = "result "
_RESULT_ROLES = ("tool", "function")
_ROLES = ("assistant", "user", "system", "developer")
_TAKEN_ROLES = ("call", "result", "reasoning")
_REASONING_TYPES = ("reasoning", "reasoning_text", "thinking", "redacted_thinking")
_DEFAULT = View()
_decode = json.JSONDecoder().decode
_encode = json.JSONEncoder(ensure_ascii=False).encode

Clean = Callable[[str], str]


class Line(NamedTuple):
    """A text with the words that introduce it: what was said, one call, one result, or reasoning.

    `head` starts at the margin; `text` is harmless and holds `IMAGE` once for each of `images`.
    """

    head: str
    text: str
    images: tuple[Mapping[str, Any], ...] = ()

    @property
    def is_result(self) -> bool:
        return self.head == _RESULT

    def __str__(self) -> str:
        return self.head + self.text if self.text else self.head.rstrip()


def harmless(text: str) -> str:
    """`text` as valid Unicode that can open or close no block and start no line at the margin.

    Lone surrogates become U+FFFD, `<` becomes `&lt;`, every kind of line break becomes a newline
    with two spaces after it.
    """
    return NEXT_LINE.join(valid_unicode(text).replace("<", "&lt;").splitlines())


def valid_unicode(text: str) -> str:
    """`text` with every lone surrogate replaced by U+FFFD, so that it can be encoded as UTF-8."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def lines_of(message: Message, view: View = _DEFAULT, clean: Clean = harmless) -> list[Line]:
    """One message as lines, at least one: what it says, its calls, or a result; all else is left out.

    `clean` makes an agent's text harmless.
    """
    role = str(message.get("role", ""))
    runs = _runs(message.get("content"), view)
    if role in _RESULT_ROLES:
        return [_line(_RESULT, runs, clean)]
    lines = _reasoning(message, clean) if view.reasoning else []
    functions = _functions(message)
    if runs or not (lines or functions):
        lines.append(_line(f"{_role(role)}: ", runs, clean))
    return [*lines, *(_call(function, clean) for function in functions)]


def render_message(message: Message, view: View = _DEFAULT) -> str:
    """One message as text: content, tool calls and tool results; ids, log-probs and all else are left out."""
    return "\n".join(map(str, lines_of(message, view)))


def _line(head: str, runs: Sequence[str | Mapping[str, Any]], clean: Clean) -> Line:
    if len(runs) == 1 and isinstance(runs[0], str):
        return Line(head, clean(runs[0]).rstrip())
    text = NEXT_LINE.join(clean(run) if isinstance(run, str) else IMAGE for run in runs)
    return Line(head, text.rstrip(), tuple(run for run in runs if not isinstance(run, str)))


def _runs(content: Any, view: View) -> list[str | Mapping[str, Any]]:
    """The content as texts and the images to pass on, in order; no empty text where there is nothing else."""
    if content is None or isinstance(content, str):
        return [content] if content else []
    if not isinstance(content, list | tuple):
        return [_json(content)]
    runs: list[str | Mapping[str, Any]] = []
    for part in content:
        shown = _part(part, view)
        if isinstance(shown, str) and runs and isinstance(runs[-1], str):
            runs[-1] += "\n" + shown
        elif shown is not None:
            runs.append(shown)
    return [] if runs == [""] else runs


def _part(part: Any, view: View) -> str | Mapping[str, Any] | None:
    if isinstance(part, str):
        return part
    if not isinstance(part, Mapping):
        return "[part]"
    kind = part.get("type", "part")
    if kind in _REASONING_TYPES:
        return None
    if view.images == "pass" and (image := _image(part)) is not None:
        return image
    text = part.get("text")
    return text if isinstance(text, str) else f"[{kind}]"


def _image(part: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The part as OpenAI's image_url part with nothing else in it; None where it holds no address."""
    held = part.get("image_url")
    url, detail = (held.get("url"), held.get("detail")) if isinstance(held, Mapping) else (held, None)
    if not (isinstance(url, str) and url and url.isascii()):
        return None
    kept = {"url": url, "detail": detail} if detail in ("low", "high", "auto") else {"url": url}
    return {"type": "image_url", "image_url": kept}


def _reasoning(message: Message, clean: Clean) -> list[Line]:
    content = message.get("content")
    parts = content if isinstance(content, list | tuple) else ()
    found = [message.get("reasoning_content"), message.get("reasoning")]
    for part in parts:
        if isinstance(part, Mapping) and part.get("type") in _REASONING_TYPES:
            found += [part.get(key) for key in ("text", "thinking", "reasoning")]
    texts = dict.fromkeys(text for text in found if isinstance(text, str) and text)
    return [Line("reasoning: ", clean(text).rstrip()) for text in texts]


def _functions(message: Message) -> list[Mapping[str, Any]]:
    """Name and arguments of every call, whether they stand in a field of their own or in the call."""
    functions: list[Mapping[str, Any]] = []
    listed = message.get("tool_calls")
    for call in listed if isinstance(listed, list | tuple) else ():
        if isinstance(call, Mapping):
            inner = call.get("function") or call.get("custom")
            functions.append(inner if isinstance(inner, Mapping) else call)
    legacy = message.get("function_call")
    return [*functions, legacy] if isinstance(legacy, Mapping) else functions


def _call(function: Mapping[str, Any], clean: Clean) -> Line:
    arguments = function.get("arguments", function.get("input", ""))
    return Line(f"call {_word(str(function.get('name', '')))} ", clean(_arguments(arguments)).rstrip())


def _arguments(arguments: Any) -> str:
    """Arguments with JSON's own spacing where they are JSON, otherwise as the agent wrote them."""
    if not isinstance(arguments, str):
        return _json(arguments)
    try:
        return _encode(_decode(arguments))
    except (ValueError, RecursionError):
        return arguments


def _json(value: Any) -> str:
    """`value` as JSON; as Python writes it where JSON cannot hold it."""
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):
        return str(value)


def _role(role: str) -> str:
    """The role as one word that is no other line's introduction."""
    if role in _ROLES:
        return role
    word = _word(role)
    return f"{word}_" if word.lower() in _TAKEN_ROLES else word


def _word(name: str) -> str:
    """A name as one harmless word of bounded length."""
    if name.isascii() and name.isidentifier() and len(name) <= NAME_CHARS:
        return name
    word = re.sub(r"\s+", "_", harmless(name[:NAME_CHARS]).strip())
    return (f"{word}…" if len(name) > NAME_CHARS else word) or "unnamed"

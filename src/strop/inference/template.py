"""Render a chat template as transformers does, and give tools to templates that know none.

A template that never mentions `tools` gets them written into the system message, calls written as
`<tool_call>{"name": …, "arguments": …}</tool_call>` and results as user turns.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, NoReturn

import jinja2
import jinja2.ext
import jinja2.meta
import jinja2.nodes
import jinja2.parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from strop.errors import InputError
from strop.trajectory.model import Message

CALL_OPEN, CALL_CLOSE = "<tool_call>", "</tool_call>"
RESULT_OPEN, RESULT_CLOSE = "<tool_response>", "</tool_response>"


def render(
    template: str,
    messages: Sequence[Message],
    tools: Sequence[Mapping[str, Any]] | None,
    *,
    generation_prompt: bool,
    special: Mapping[str, str],
) -> str:
    """Text of a `shaped` conversation under a chat template. `special` holds bos_token and eos_token.

    Raises InputError where the template refuses the conversation.
    """
    try:
        return _compiled(template).render(
            messages=messages, tools=tools, add_generation_prompt=generation_prompt, **special
        )
    # A template is the model's own program and may raise anything.
    except Exception as error:
        raise InputError(f"the model's chat template refuses these messages: {error}") from error


def shaped(
    template: str, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]
) -> tuple[list[dict[str, Any]], list[Mapping[str, Any]] | None]:
    """Messages and tools as the template reads them: natively, or in plain text where it knows no tools."""
    if knows_tools(template):
        return [_native(message) for message in messages], list(tools) or None
    return [*without_tools(messages, tools)], None


@lru_cache(maxsize=16)
def knows_tools(template: str) -> bool:
    """Whether a template renders tools itself: it reads the variable. One that is broken does not."""
    try:
        return "tools" in jinja2.meta.find_undeclared_variables(_environment().parse(template))
    except jinja2.TemplateError:
        return False


def _native(message: Message) -> dict[str, Any]:
    """Text content as one string, arguments of calls as objects: templates write those as JSON themselves.

    Only beside calls may content be None, for some templates tell a call by that.
    """
    calls = message.get("tool_calls")
    content = message.get("content")
    if not calls:
        return {**message, "content": text_of(content)}
    return {
        **message,
        "content": None if content is None else text_of(content),
        "tool_calls": [
            {**call, "function": {**call["function"], "arguments": as_object(call["function"]["arguments"])}}
            for call in calls
        ],
    }


def as_object(arguments: str) -> Any:
    """The JSON object that the arguments of a call are, or their text as it stands."""
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    return value if isinstance(value, dict) else arguments


def without_tools(messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """The same conversation in system, user and assistant messages of plain text only."""
    plain = [_plain(message) for message in messages]
    if tools:
        text = tools_text(tools)
        if plain and plain[0]["role"] == "system":
            plain[0]["content"] = f"{plain[0]['content']}\n\n{text}"
        else:
            plain.insert(0, {"role": "system", "content": text})
    return _joined_results(plain)


def tools_text(tools: Sequence[Mapping[str, Any]]) -> str:
    """One line a tool, as a signature with its description, then how to call one."""
    lines = [_signature(tool["function"]) for tool in tools]
    form = f'{CALL_OPEN}{{"name": ..., "arguments": {{...}}}}{CALL_CLOSE}'
    return "\n".join(["Tools:", *lines, f"Call a tool with {form}"])


def call_text(name: str, arguments: str) -> str:
    """The text form of one tool call; arguments that are JSON are normalised to one spelling."""
    try:
        spelled = json.dumps(json.loads(arguments), ensure_ascii=False)
    except (ValueError, RecursionError):
        spelled = arguments
    return f'{CALL_OPEN}{{"name": {json.dumps(name)}, "arguments": {spelled}}}{CALL_CLOSE}'


def _signature(function: Mapping[str, Any]) -> str:
    parameters = function.get("parameters", {}).get("properties", {})
    inside = ", ".join(f"{name}: {spec.get('type', 'any')}" for name, spec in parameters.items())
    return f"{function['name']}({inside}): {function.get('description', '')}".rstrip(": ")


def _plain(message: Message) -> dict[str, str]:
    content = text_of(message.get("content"))
    if message["role"] == "tool":
        return {"role": "tool", "content": f"{RESULT_OPEN}{content}{RESULT_CLOSE}"}
    calls = [
        call_text(c["function"]["name"], c["function"]["arguments"]) for c in message.get("tool_calls") or ()
    ]
    return {"role": message["role"], "content": "\n".join([content, *calls] if content else calls)}


def _joined_results(plain: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    """Tool results become user turns; neighbouring ones share a turn, as roles must alternate."""
    joined: list[dict[str, str]] = []
    previous = ""
    for message in plain:
        if message["role"] == "tool" == previous:
            joined[-1]["content"] += "\n" + message["content"]
        else:
            joined.append({**message, "role": "user"} if message["role"] == "tool" else message)
        previous = message["role"]
    return joined


def text_of(content: object) -> str:
    """Text of a message's content: a string, a list of text parts, or nothing."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, Sequence):
        return "".join(part.get("text", "") for part in content if isinstance(part, Mapping))
    raise InputError(f"message content must be a string or a list of parts, not {type(content).__name__}")


class _Generation(jinja2.ext.Extension):
    """`{% generation %}` marks what a model writes, for trainers; the text is as if it were not there."""

    tags = {"generation"}  # noqa: RUF012 - as jinja2 declares it

    def parse(self, parser: jinja2.parser.Parser) -> jinja2.nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.Scope(body, lineno=line)


@lru_cache(maxsize=16)
def _compiled(template: str) -> jinja2.Template:
    return _environment().from_string(template)


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return environment


def _tojson(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)

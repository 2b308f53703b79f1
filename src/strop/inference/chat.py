"""Conversations to token ids and back: what the model is shown, and what its reply means."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from strop.inference.sampling import Tokenizer
from strop.inference.template import CALL_CLOSE, CALL_OPEN, as_object, call_text, render, shaped, text_of
from strop.trajectory.model import Message

_OPENING = re.compile(rf"(?:{CALL_OPEN}\s*)+")
_END = re.compile(rf"{CALL_CLOSE}|(?={CALL_OPEN})|\Z")
_NAME = re.compile(r'"name"\s*:\s*"([^"\\]+)"')
_ARGUMENTS = re.compile(r'"arguments"\s*:\s*(.*?)\}?\s*$', re.DOTALL)
_DECODER = json.JSONDecoder()
_THINK_END = "</think>"
_MARK = "reply-ends-here"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A call the model asked for. `arguments` is a JSON text, or the model's broken attempt at one."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A reply as an OpenAI message would hold it. `problem` names what could not be read, if anything."""

    content: str | None
    tool_calls: tuple[ToolCall, ...] = ()
    problem: str | None = None


class Chat:
    """One model's way of writing conversations, around its tokenizer and chat template."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self._special = {"bos_token": tokenizer.bos_token, "eos_token": tokenizer.eos_token}
        controls = sorted(filter(None, tokenizer.special_tokens), key=len, reverse=True)
        self._controls = re.compile("|".join(map(re.escape, controls))) if controls else None

    def prompt(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> list[int]:
        """Ids of the whole conversation with the generation prompt.

        Text of messages never becomes a control token: a zero-width space breaks any spelling of one.
        """
        return self.tokenizer.encode(self.render_text(messages, tools), special=True)

    def extend(
        self,
        seen_ids: Sequence[int],
        messages: Sequence[Message],
        known: int,
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> list[int] | None:
        """Ids of the next prompt: `seen_ids`, then what the messages after `known` add.

        `seen_ids` are the previous prompt and the tokens sampled for messages[known - 1]; they are
        kept as they are. None where the template no longer shows that reply as it was sampled
        (it strips reasoning, or rewrites the past): the caller must start afresh with `prompt`.
        """
        head = self._render(messages[:known], tools, generation_prompt=False)
        whole = self.render_text(messages, tools)
        kept = whole.startswith(head) and head.endswith(self._closing)
        if not kept or self._strips_reasoning(seen_ids, head):
            return None
        added = self.tokenizer.encode(self._closing + whole[len(head) :], special=True)
        if self._ended(seen_ids[-1:]) and self._ended(added[:1]):
            added = added[1:]
        return [*seen_ids, *added]

    @property
    def end_ids(self) -> list[int]:
        """What a model samples to end its turn: the first control token the template closes a reply with."""
        closing = self.tokenizer.encode(self._closing, special=True)
        ends = closing[:1] if self._ended(closing[:1]) else []
        return ends or self.tokenizer.encode(self.tokenizer.eos_token, special=True)

    def render_text(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> str:
        """The text whose tokens `prompt` returns."""
        return self._render(messages, tools, generation_prompt=True)

    def closed_text(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> str:
        """The text of a conversation that ends with its last message: no reply is awaited."""
        return self._render(messages, tools, generation_prompt=False)

    def written(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> str:
        """The text a model must sample for the last of these messages to be its reply.

        As the template writes it where `parse` reads that back, else in strop's own words.
        """
        before = self.render_text(messages[:-1], tools)
        whole = self._render(messages, tools, generation_prompt=False)
        if whole.startswith(before) and whole.endswith(self._closing):
            text = whole[len(before) : len(whole) - len(self._closing)]
            if _says(self.parse(text, tools), messages[-1]):
                return text
        return _in_words(messages[-1])

    def parse(self, text: str, tools: Sequence[Mapping[str, Any]] = ()) -> Reply:
        """Read a sampled text. Without tools on offer, all of it is content.

        A call whose JSON is broken is still a call if its name can be read, with the arguments as
        the model wrote them, so that the agent can answer with an error; else it stays content and
        `problem` says so.
        """
        text = text.strip()
        content, blocks = _split(text) if tools else (text, [])
        calls = [_call(block) for block in blocks]
        if not calls:
            return Reply(content=text)
        if None in calls:
            return Reply(content=text, problem="a tool call without a readable name")
        return Reply(content=content or None, tool_calls=tuple(call for call in calls if call))

    def _render(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], *, generation_prompt: bool
    ) -> str:
        template = self.tokenizer.chat_template
        shown, offered = shaped(template, messages, tools)
        return render(
            template,
            self._harmless(shown),
            self._harmless(offered),
            generation_prompt=generation_prompt,
            special=self._special,
        )

    @cached_property
    def _closing(self) -> str:
        """What the template writes after a reply."""
        asked = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": _MARK}]
        return self._render(asked, (), generation_prompt=False).rpartition(_MARK)[2]

    def _harmless(self, value: Any) -> Any:
        """The same JSON value with every spelling of a control token broken, whatever string it is in."""
        if isinstance(value, str):
            return self._controls.sub(_broken_spelling, value) if self._controls else value
        if isinstance(value, Mapping):
            return {key: self._harmless(item) for key, item in value.items()}
        if isinstance(value, Sequence):
            return [self._harmless(item) for item in value]
        return value

    def _ended(self, ids: Sequence[int]) -> bool:
        return bool(ids) and ids[0] in self.tokenizer.eos_ids

    def _strips_reasoning(self, seen_ids: Sequence[int], head: str) -> bool:
        return head.count(_THINK_END) < self.tokenizer.decode(seen_ids).count(_THINK_END)


def _says(reply: Reply, message: Message) -> bool:
    """Whether a reply is this message, but for white space around the content and the ids of calls."""
    read = [(call.name, as_object(call.arguments)) for call in reply.tool_calls]
    meant = [(name, as_object(arguments)) for name, arguments in _calls_of(message)]
    return read == meant and (reply.content or "").strip() == text_of(message.get("content")).strip()


def _in_words(message: Message) -> str:
    content = text_of(message.get("content"))
    calls = [call_text(name, arguments) for name, arguments in _calls_of(message)]
    return "\n".join([content, *calls] if content else calls)


def _calls_of(message: Message) -> list[tuple[str, str]]:
    functions = [call["function"] for call in message.get("tool_calls") or ()]
    return [(function["name"], function["arguments"]) for function in functions]


def _broken_spelling(found: re.Match[str]) -> str:
    return found[0][0] + "\u200b" + found[0][1:]


def _split(text: str) -> tuple[str, list[str]]:
    """What stands outside of tool calls, and the inside of each.

    A call ends at its closing tag, at the next call or at the end of the text, but never inside its
    own JSON, where a tag is part of an argument.
    """
    outside, blocks, at = [], [], 0
    while opening := _OPENING.search(text, at):
        end = _END.search(text, _after_json(text, opening.end()))
        assert end is not None
        outside.append(text[at : opening.start()])
        blocks.append(text[opening.end() : end.start()])
        at = end.end()
    outside.append(text[at:])
    return "".join(outside).replace(CALL_CLOSE, "").strip(), blocks


def _after_json(text: str, start: int) -> int:
    try:
        return _DECODER.raw_decode(text, start)[1]
    except (ValueError, RecursionError):
        return start


def _call(block: str) -> ToolCall | None:
    try:
        call = json.loads(block)
        arguments = call["arguments"]
        name = call["name"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return _broken_call(block)
    if not isinstance(name, str):
        return None
    spelled = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return ToolCall(name=name, arguments=spelled)


def _broken_call(block: str) -> ToolCall | None:
    name = _NAME.search(block)
    if name is None:
        return None
    arguments = _ARGUMENTS.search(block)
    return ToolCall(name=name[1], arguments=_as_written(block, arguments) if arguments else "")


def _as_written(block: str, arguments: re.Match[str]) -> str:
    """The arguments of a broken call: to the end of their own JSON, or all but the call's last brace."""
    end = _after_json(block, arguments.start(1))
    return block[arguments.start(1) : end] or arguments[1]

"""Conversations to token ids and back: what the model is shown, and what its reply means."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from strop.inference.sampling import Tokenizer
from strop.inference.template import CALL_CLOSE, CALL_OPEN, render, text_of
from strop.trajectory.model import Message

_BLOCK = re.compile(f"{CALL_OPEN}(.*?)(?:{CALL_CLOSE}|$)", re.DOTALL)
_NAME = re.compile(r'"name"\s*:\s*"([^"\\]+)"')
_ARGUMENTS = re.compile(r'"arguments"\s*:\s*(.*?)\}?\s*$', re.DOTALL)
_THINK_END = "</think>"


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
        if not whole.startswith(head) or self._strips_reasoning(seen_ids, head):
            return None
        end = self.tokenizer.eos_token
        cut = head.rfind(end)
        closing = head[cut:] if cut >= 0 else ""
        if seen_ids and seen_ids[-1] in self.tokenizer.eos_ids:
            closing = closing.removeprefix(end)
        return [*seen_ids, *self.tokenizer.encode(closing + whole[len(head) :], special=True)]

    def render_text(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> str:
        """The text whose tokens `prompt` returns."""
        return self._render(messages, tools, generation_prompt=True)

    def parse(self, text: str, tools: Sequence[Mapping[str, Any]] = ()) -> Reply:
        """Read a sampled text. Without tools on offer, all of it is content.

        A call whose JSON is broken is still a call if its name can be read, with the arguments as
        the model wrote them, so that the agent can answer with an error; else it stays content and
        `problem` says so.
        """
        text = text.strip()
        blocks = _BLOCK.findall(text) if tools else []
        calls = [_call(block) for block in blocks]
        if not calls:
            return Reply(content=text)
        if None in calls:
            return Reply(content=text, problem="a tool call without a readable name")
        content = _BLOCK.sub("", text).strip()
        return Reply(content=content or None, tool_calls=tuple(call for call in calls if call))

    def _render(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], *, generation_prompt: bool
    ) -> str:
        return render(
            self.tokenizer.chat_template,
            [self._harmless(message) for message in messages],
            tools,
            generation_prompt=generation_prompt,
            special=self._special,
        )

    def _harmless(self, message: Message) -> Message:
        text = text_of(message.get("content"))
        if self._controls is None or not self._controls.search(text):
            return {**message, "content": text}
        broken = self._controls.sub(lambda found: found[0][0] + "\u200b" + found[0][1:], text)
        return {**message, "content": broken}

    def _strips_reasoning(self, seen_ids: Sequence[int], head: str) -> bool:
        if _THINK_END in head:
            return False
        return _THINK_END in self.tokenizer.decode(seen_ids)


def _call(block: str) -> ToolCall | None:
    try:
        call = json.loads(block)
        arguments = call["arguments"]
        name = call["name"]
    except (ValueError, KeyError, TypeError):
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
    return ToolCall(name=name[1], arguments=arguments[1] if arguments else "")

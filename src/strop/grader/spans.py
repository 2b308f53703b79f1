"""What each sampled token of a step is: reasoning, prose, tool name, tool arguments or template."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Literal

Kind = Literal["reasoning", "prose", "tool_name", "tool_arguments", "template"]
Decode = Callable[[Sequence[int]], str]

_BLOCK = re.compile(r"<(think|tool_call)>(.*?)(</\1>|\Z)", re.DOTALL)
_THINK_END = "</think>"
_BEGUN = re.compile(r"((?:(?!<think>|<tool_call>).)*?)</think>", re.DOTALL)
"""Reasoning whose beginning stood in the prompt. A draft of a call ends it: its tags may be arguments."""
_SPACE = re.compile(r"\s*")
_JSON = json.JSONDecoder()


def token_kinds(
    ids: Sequence[int], decode: Decode, kinds_of: Callable[[str], list[Kind]] | None = None
) -> tuple[Kind, ...]:
    """One kind for each of the ids of one model reply, which `decode` turns into text.

    A token that decodes to nothing (a control token) is template. Any other takes the kind of its
    first character that is not a space, or of its first character. `kinds_of` names the kind of each
    character, None: `text_kinds`. Where tokens decoded one by one do not spell the text, offsets come
    from decoding every prefix, and tokens that make up one character between them share its kind.
    """
    text, pieces = decode(ids), [decode([token]) for token in ids]
    kinds = (kinds_of or text_kinds)(text)
    if "".join(pieces) == text:
        ends = [0, *accumulate(map(len, pieces))]
    else:
        ends = [0, *(len(decode(ids[: i + 1])) for i in range(len(ids)))]
    return tuple(
        "template" if pieces[i] == "" else _kind_at(text, kinds, ends[i], ends[i + 1])
        for i in range(len(ids))
    )


def text_kinds(text: str) -> list[Kind]:
    """One kind for each character of a reply in the `<tool_call>{…}</tool_call>` form.

    Inside a call the value of "name" (without quotes) is tool_name, the value of "arguments" is
    tool_arguments, and braces, keys and tags are template. From where a call stops being JSON its
    text is prose. `<think>` blocks are reasoning, and so is what stands before the end of one that the
    prompt began. All else is prose.
    """
    kinds: list[Kind] = ["prose"] * len(text)
    begun = _BEGUN.match(text)
    if begun:
        kinds[: begun.end(1)] = ["reasoning"] * begun.end(1)
        kinds[begun.end(1) : begun.end()] = ["template"] * len(_THINK_END)
    for block in _BLOCK.finditer(text, begun.end() if begun else 0):
        kinds[block.start() : block.end()] = ["template"] * (block.end() - block.start())
        start, end = block.span(2)
        if block.group(1) == "think":
            kinds[start:end] = ["reasoning"] * (end - start)
        else:
            kinds[start:end] = _call_kinds(text[start:end])
    return kinds


def _call_kinds(call: str) -> list[Kind]:
    kinds: list[Kind] = ["template"] * len(call)
    done = 0
    for key, start, end in _members(call):
        if key == "name":
            kinds[start + 1 : end - 1] = ["tool_name"] * (end - start - 2)
        elif key in ("arguments", "parameters"):
            kinds[start:end] = ["tool_arguments"] * (end - start)
        done = end
    rest = call[done:]
    if rest.strip() not in ("}", ""):
        kinds[done:] = ["prose"] * len(rest)
    return kinds


def _members(text: str) -> Iterator[tuple[str, int, int]]:
    """Key, value start and value end of each top-level member, up to where it stops being JSON."""
    position = text.find("{") + 1
    while position:
        try:
            key, position = _JSON.raw_decode(text, _after_space(text, position))
            colon = _after_space(text, position)
            start = _after_space(text, colon + 1)
            value, end = _JSON.raw_decode(text, start)
        except json.JSONDecodeError:
            return
        if text[colon] != ":" or (key == "name" and not isinstance(value, str)):
            return
        yield str(key), start, end
        comma = _after_space(text, end)
        position = comma + 1 if text[comma : comma + 1] == "," else 0


def _after_space(text: str, position: int) -> int:
    found = _SPACE.match(text, position)
    return found.end() if found else position


def _kind_at(text: str, kinds: Sequence[Kind], start: int, end: int) -> Kind:
    if not kinds:
        return "template"
    inked = next((i for i in range(start, end) if not text[i : i + 1].isspace()), start)
    return kinds[min(inked, len(kinds) - 1)]

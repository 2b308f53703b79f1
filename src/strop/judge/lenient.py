"""JSON as language models write it, with the place of every value in the text. Nothing is guessed.

Accepted beyond JSON: trailing commas, single-quoted strings, raw line breaks in strings, unknown
escapes (kept as written), bare words as keys and values, numbers as ".5", "5." and "+0.5". Repeated
keys are kept, never merged. What is valid JSON of at most MAX_DEPTH levels reads as `json` reads it.
"""

import json
import re
from dataclasses import dataclass
from typing import NamedTuple, NoReturn

from strop.judge.transcript import valid_unicode

MAX_DEPTH = 64

_WORD = re.compile(r"[-+.\w]+", re.ASCII)
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", re.ASCII)
_INTEGER = re.compile(r"[-+]?\d{1,18}", re.ASCII)
_SPACE = re.compile("[\\s\u200b\u200c\u200d\u2060\ufeff]*")
_PLAIN = {quote: re.compile(f"[^{quote}\\\\]*") for quote in "\"'"}
_HEX = re.compile("[0-9a-fA-F]{4}")
_SURROGATE = re.compile("[\ud800-\udfff]")
_NAMES: dict[str, "Value"] = {
    "true": True, "True": True, "false": False, "False": False, "null": None, "None": None,
}  # fmt: skip
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", '"': '"', "'": "'", "\\": "\\", "/": "/"}


class Member(NamedTuple):
    """A value in its container: its key ("" in an array), and where key and value begin and end."""

    key: str
    value: "Value"
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Fields:
    """A JSON object with its members in order, those of repeated keys included."""

    members: tuple[Member, ...]

    def all(self, *keys: str) -> list["Value"]:
        """Every value that stands under one of `keys`."""
        return [member.value for member in self.members if plain_key(member.key) in keys]


@dataclass(frozen=True, slots=True)
class Items:
    """A JSON array."""

    members: tuple[Member, ...]


Value = Fields | Items | str | int | float | bool | None


class Broken(ValueError):
    """The text is not a value. `where` reading stopped; `ended`: because the text did."""

    def __init__(self, where: int, *, ended: bool) -> None:
        super().__init__(f"no value: {'text ends' if ended else 'unexpected character'} at {where}")
        self.where = where
        self.ended = ended


def plain_key(key: str) -> str:
    """A key as it is compared: in lower case, without the backslash that Markdown puts before "_"."""
    return key.strip().lower().replace("\\_", "_")


def number(text: str) -> int | float | None:
    """The number that all of `text` is, in ASCII digits with a decimal point; None for anything else.

    An integer stays exact up to 18 digits, since it may be an id; beyond double range it is infinite.
    """
    text = text.strip()
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _NUMBER.fullmatch(text) else None


def is_strict(text: str) -> bool:
    """Whether `text` is one JSON value as `json` reads it."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def read(text: str, start: int) -> tuple[Value, int]:
    """The value that begins at `start` and the position after it. Raises Broken."""
    reader = _Reader(text, start)
    return reader.value(0), reader.at


def read_whole(text: str) -> Value:
    """The value that `text` is, with nothing but space around it. Raises Broken."""
    value, end = read(text, 0)
    if text[end:].strip():
        raise Broken(end, ended=False)
    return value


class _Reader:
    def __init__(self, text: str, at: int) -> None:
        self.text = text
        self.at = at

    def value(self, depth: int) -> Value:
        if depth > MAX_DEPTH:
            self._broken()
        first = self._peek()
        if first == "{":
            return self._object(depth)
        if first == "[":
            return self._array(depth)
        if first in "\"'":
            return self._string(first)
        return _named(self._word())

    def _object(self, depth: int) -> Fields:
        self.at += 1
        members: list[Member] = []
        while not self._closes("}"):
            start = self.at
            first = self._peek()
            key = self._string(first) if first in "\"'" else self._word()
            if self._peek() != ":":
                self._broken()
            self.at += 1
            members.append(Member(key, self.value(depth + 1), start, self.at))
            self._separator("}")
        return Fields(tuple(members))

    def _array(self, depth: int) -> Items:
        self.at += 1
        members: list[Member] = []
        while not self._closes("]"):
            start = self.at
            members.append(Member("", self.value(depth + 1), start, self.at))
            self._separator("]")
        return Items(tuple(members))

    def _string(self, quote: str) -> str:
        self.at += 1
        parts: list[str] = []
        while True:
            plain = _PLAIN[quote].match(self.text, self.at)
            if plain is not None:
                parts.append(plain.group())
                self.at = plain.end()
            if self.at >= len(self.text):
                self._broken()
            self.at += 1
            if self.text[self.at - 1] == quote:
                break
            parts.append(self._escape())
        text = "".join(parts)
        return valid_unicode(text) if _SURROGATE.search(text) else text

    def _escape(self) -> str:
        char = self.text[self.at : self.at + 1]
        self.at += 1
        if char == "u" and (digits := _HEX.match(self.text, self.at)):
            self.at += 4
            return chr(int(digits.group(), 16))
        return _ESCAPES.get(char, "\\" + char)

    def _word(self) -> str:
        self._peek()
        match = _WORD.match(self.text, self.at)
        if match is None:
            self._broken()
        self.at = match.end()
        return match.group()

    def _closes(self, bracket: str) -> bool:
        if self._peek() != bracket:
            return False
        self.at += 1
        return True

    def _separator(self, bracket: str) -> None:
        after = self._peek()
        if after == ",":
            self.at += 1
        elif after != bracket:
            self._broken()

    def _peek(self) -> str:
        space = _SPACE.match(self.text, self.at)
        self.at = space.end() if space else self.at
        if self.at >= len(self.text):
            self._broken()
        return self.text[self.at]

    def _broken(self) -> NoReturn:
        raise Broken(self.at, ended=self.at >= len(self.text))


def _named(word: str) -> Value:
    if word in _NAMES:
        return _NAMES[word]
    stated = number(word)
    return word if stated is None else stated

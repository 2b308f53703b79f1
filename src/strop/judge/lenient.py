"""JSON as language models write it: `json` reads the strict kind, this what it refuses. Nothing is guessed.

Accepted beyond JSON: trailing commas, single-quoted strings, raw line breaks in strings, unknown
escapes (kept as written), bare words as keys and values. Repeated keys are kept, never merged.
"""

import json
import re
from dataclasses import dataclass
from typing import NoReturn

MAX_DEPTH = 64

_WORD = re.compile(r"[-+.\w]+", re.ASCII)
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", re.ASCII)
_SPACE = re.compile("[\\s\u200b\u200c\u200d\u2060\ufeff]*")
_NAMES: dict[str, "Value"] = {
    "true": True, "True": True, "false": False, "False": False, "null": None, "None": None,
}  # fmt: skip
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", '"': '"', "'": "'", "\\": "\\", "/": "/"}


@dataclass(frozen=True, slots=True)
class Fields:
    """A JSON object with its keys in order, repeated ones included."""

    pairs: tuple[tuple[str, "Value"], ...]

    def all(self, *keys: str) -> list["Value"]:
        """Every value that stands under one of `keys`."""
        return [value for key, value in self.pairs if key.strip().lower() in keys]


Value = Fields | list["Value"] | str | float | bool | None


class Broken(ValueError):
    """The text is not a value. `ended` says that it stopped early rather than went wrong."""

    def __init__(self, where: int, *, ended: bool) -> None:
        super().__init__(f"no value: {'text ends' if ended else 'unexpected character'} at {where}")
        self.ended = ended


def number(text: str) -> float | None:
    """The number that all of `text` is, in ASCII digits with a decimal point; None for anything else."""
    return float(text) if _NUMBER.fullmatch(text.strip()) else None


def read_strict(text: str) -> Value:
    """`text` as one JSON value. Raises ValueError where it is not, or is nested too deeply."""
    try:
        value: Value = json.loads(text, object_pairs_hook=lambda pairs: Fields(tuple(pairs)), parse_int=float)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    return value


def read(text: str, start: int) -> tuple[Value, int]:
    """The value that begins at `start` and the position after it. Raises Broken."""
    reader = _Reader(text, start)
    return reader.value(0), reader.at


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
        pairs: list[tuple[str, Value]] = []
        while not self._closes("}"):
            first = self._peek()
            key = self._string(first) if first in "\"'" else self._word()
            if self._peek() != ":":
                self._broken()
            self.at += 1
            pairs.append((key, self.value(depth + 1)))
            self._separator("}")
        return Fields(tuple(pairs))

    def _array(self, depth: int) -> list[Value]:
        self.at += 1
        items: list[Value] = []
        while not self._closes("]"):
            items.append(self.value(depth + 1))
            self._separator("]")
        return items

    def _string(self, quote: str) -> str:
        self.at += 1
        parts: list[str] = []
        while True:
            if self.at >= len(self.text):
                self._broken()
            char = self.text[self.at]
            self.at += 1
            if char == quote:
                return "".join(parts)
            parts.append(self._escape() if char == "\\" else char)

    def _escape(self) -> str:
        char = self.text[self.at : self.at + 1]
        self.at += 1
        digits = self.text[self.at : self.at + 4]
        if char == "u" and re.fullmatch("[0-9a-fA-F]{4}", digits):
            self.at += 4
            return chr(int(digits, 16))
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
    as_number = number(word)
    return word if as_number is None else as_number

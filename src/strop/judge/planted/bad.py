"""Replies gone wrong in the ways that judges' replies do, made from the scores that were meant."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from strop.errors import InputError
from strop.judge.planted.reading import Asked


class BadReply(StrEnum):
    """What is wrong with a reply. The first group can still be read as it was meant (see READABLE)."""

    FENCED = "fenced"
    PROSE = "prose"
    THINK = "think"
    SORTED = "sorted"
    STRING_SCORE = "string_score"
    ECHO = "echo"
    MISSING_ID = "missing_id"
    DUPLICATE_ID = "duplicate_id"
    UNEXPECTED_ID = "unexpected_id"
    OUT_OF_RANGE = "out_of_range"
    NAN = "nan"
    TWO_VERDICTS = "two_verdicts"
    TRUNCATED = "truncated"
    EMPTY = "empty"
    REFUSAL = "refusal"


READABLE = (
    BadReply.FENCED,
    BadReply.PROSE,
    BadReply.THINK,
    BadReply.SORTED,
    BadReply.STRING_SCORE,
    BadReply.ECHO,
)
"""Kinds in which a careful reader finds the scores that were meant, or rightly says `ambiguous`."""

UNREADABLE = tuple(kind for kind in BadReply if kind not in READABLE)
"""Kinds that no reader can turn into the scores that were meant."""

_REFUSED = "I'm sorry, but I can't help with evaluating this content."


@dataclass(frozen=True, slots=True, kw_only=True)
class Meant:
    """The scores that a judge means by shown id, with what it was asked and what it says of each."""

    asked: Asked
    scores: Mapping[str, float]
    explanation: str


def spread(rate: float, kinds: Sequence[BadReply | str] = tuple(BadReply)) -> dict[str, float]:
    """Rates that sum to `rate`, the same for every kind. Raises InputError for a rate outside 0 to 1."""
    if not 0 <= rate <= 1:
        raise InputError(f"a rate of bad replies is {rate}; it must be in 0 to 1")
    return {str(kind): rate / len(kinds) for kind in kinds}


def verdict_text(key: str, items: Sequence[tuple[str, Any]], explanation: str) -> str:
    """The JSON of a verdict that lists `items` (id, score) in their order."""
    listed = [{"trajectory_id": i, "explanation": explanation, "score": score} for i, score in items]
    return json.dumps({key: listed})


def good_text(meant: Meant) -> str:
    """The verdict as asked for: every id once, in the order shown."""
    return _verdict(meant, list(meant.scores.items()))


def spoilt_text(kind: BadReply, meant: Meant, rng: np.random.Generator) -> tuple[str, str]:
    """A reply with several scores and its finish reason, gone wrong as `kind` says."""
    good = good_text(meant)
    if kind is BadReply.TRUNCATED:
        return good[: int(len(good) * rng.uniform(0.1, 0.95))], "length"
    if kind is BadReply.ECHO:
        place = int(rng.integers(len(meant.asked.ids)))
        said = f"Attempt {meant.asked.ids[place]} says: {meant.asked.texts[place]}"
        return f"{said}\nMy verdict:\n{good}", "stop"
    items = _spoilt_items(kind, list(meant.scores.items()), rng)
    return (_worded(kind, good, _rival(meant)) if items is None else _verdict(meant, items)), "stop"


def spoilt_digit(kind: BadReply, digit: int, text: str) -> tuple[str, str] | None:
    """A reply of one digit gone wrong as `kind` says; None where that cannot happen to a digit.

    `text` is the attempt's, for an echo.
    """
    said = _DIGITS.get(kind)
    if said is None:
        return None
    told = said.replace("{d}", str(digit)).replace("{e}", str((digit + 5) % 10))
    return told.replace("{text}", text), "length" if kind is BadReply.TRUNCATED else "stop"


def digit_tokens(text: str) -> list[str]:
    """The text in pieces as a tokenizer would give them: each digit alone, all between in one."""
    return re.findall(r"\d|\D+", text)


def _verdict(meant: Meant, items: Sequence[tuple[str, Any]]) -> str:
    return verdict_text(meant.asked.key, items, meant.explanation)


def _other(score: float) -> float:
    """A score that differs from `score` whatever it is."""
    return round((score + 0.5) % 1.0, 6)


def _rival(meant: Meant) -> str:
    return _verdict(meant, [(i, _other(score)) for i, score in meant.scores.items()])


def _worded(kind: BadReply, good: str, rival: str) -> str:
    """The text around or instead of a verdict; `rival` is one that differs in every score."""
    match kind:
        case BadReply.FENCED:
            return f"```json\n{good}\n```"
        case BadReply.PROSE:
            return f"Here is my verdict:\n{good}\nI hope this helps."
        case BadReply.THINK:
            return f"<think>Perhaps {rival}? No.</think>\n{good}"
        case BadReply.TWO_VERDICTS:
            return f"{good}\nOn reflection:\n{rival}"
        case BadReply.REFUSAL:
            return _REFUSED
        case _:
            return ""


Items = list[tuple[str, Any]]


def _spoilt_items(kind: BadReply, items: Items, rng: np.random.Generator) -> Items | None:
    """The items that such a verdict lists; None where the fault is not in its items."""
    match kind:
        case BadReply.SORTED:
            return sorted(items, key=lambda item: -item[1])
        case BadReply.STRING_SCORE:
            return [(name, f"{score:g}") for name, score in items]
        case BadReply.MISSING_ID:
            return _missing(items, rng)
        case BadReply.DUPLICATE_ID:
            return _duplicate(items, rng)
        case BadReply.UNEXPECTED_ID:
            lost = int(rng.integers(len(items)))
            return [(str(len(items) + 1) if i == lost else name, s) for i, (name, s) in enumerate(items)]
        case BadReply.OUT_OF_RANGE | BadReply.NAN:
            at = int(rng.integers(len(items)))
            return [(name, _impossible(kind, s) if i == at else s) for i, (name, s) in enumerate(items)]
        case _:
            return None


def _impossible(kind: BadReply, score: float) -> float:
    return math.nan if kind is BadReply.NAN else round(2 + 8 * score, 1)


def _missing(items: Items, rng: np.random.Generator) -> Items:
    gone = int(rng.integers(len(items)))
    return items[:gone] + items[gone + 1 :]


def _duplicate(items: Items, rng: np.random.Generator) -> Items:
    """One id takes another's place; an only one is given twice, with two scores."""
    if len(items) == 1:
        return [*items, (items[0][0], _other(items[0][1]))]
    kept, lost = (int(i) for i in rng.choice(len(items), size=2, replace=False))
    return [(items[kept][0], score) if i == lost else (name, score) for i, (name, score) in enumerate(items)]


_DIGITS: Mapping[BadReply, str] = {
    BadReply.FENCED: "```\n{d}\n```",
    BadReply.PROSE: "This attempt earns a {d}.",
    BadReply.THINK: "<think>Perhaps {e}? No.</think>{d}",
    BadReply.STRING_SCORE: '"{d}"',
    BadReply.ECHO: "The attempt says: {text}\n{d}",
    BadReply.OUT_OF_RANGE: "1{d}",
    BadReply.NAN: "NaN",
    BadReply.TWO_VERDICTS: "{d} or {e}",
    BadReply.TRUNCATED: "",
    BadReply.EMPTY: "",
    BadReply.REFUSAL: _REFUSED,
}

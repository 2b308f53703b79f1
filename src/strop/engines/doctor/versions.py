"""Versions of libraries against those that strop was tested with."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.resources import files
from typing import Any, Literal

SCHEMA = 1
OURS = ("torch", "transformers", "peft", "safetensors", "gguf", "openai")
State = Literal["tested", "newer than tested", "older than tested", "not tested", "known bad", "absent"]
STANDS_IN_THE_WAY: tuple[State, ...] = ("known bad", "absent")


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A library: its version here (None: not installed), those tested, what that means and why."""

    library: str
    version: str | None
    tested: tuple[str, ...]
    state: State
    why: str = ""


def found(library: str, here: str | None, table: Mapping[str, Any], least: str | None = None) -> Found:
    """How `here` stands to the table of `tested_table`; `least` is the lowest version that strop needs."""
    tested = tuple(table["tested"].get(library, ()))
    if here is None:
        return Found(library=library, version=None, tested=tested, state="absent")
    why = _known_bad(library, here, table["bad"])
    if not why and least is not None and _release(here) < _release(least):
        why = f"strop needs {least} or newer"
    state: State = "known bad" if why else _state(here, tested)
    return Found(library=library, version=here, tested=tested, state=state, why=why)


def ours() -> list[Found]:
    """The libraries that strop itself works with, in this Python."""
    table, least = tested_table(), _least()
    return [found(library, installed(library), table, least.get(library)) for library in OURS]


def tested_table() -> Mapping[str, Any]:
    """`tested`: versions by library; `bad`: what is known to fail, each with `why`."""
    text = files("strop.engines.doctor").joinpath("tested.toml").read_text(encoding="utf-8")
    table = tomllib.loads(text)
    assert table["schema"] == SCHEMA
    return table


def installed(package: str) -> str | None:
    """The version of an installed package, None where there is none."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _least() -> dict[str, str]:
    """The lowest versions that strop's own package asks for, by library; none where it is not installed."""
    try:
        asked = requires("strop") or []
    except PackageNotFoundError:
        return {}
    parsed = (re.match(r"([\w-]+)[^>;]*>=\s*([\d.]+)", line) for line in asked)
    return {match[1].lower(): match[2] for match in parsed if match}


def _known_bad(library: str, here: str, bad: list[Mapping[str, Any]]) -> str:
    for entry in bad:
        below = "below" in entry and _release(here) < _release(entry["below"])
        listed = _release(here) in [_release(each) for each in entry.get("versions", ())]
        if entry["library"] == library and (below or listed):
            return str(entry["why"])
    return ""


def _state(here: str, tested: tuple[str, ...]) -> State:
    releases = sorted(_release(each) for each in tested)
    mine = _release(here)
    if not releases or (releases[0] < mine < releases[-1] and mine not in releases):
        return "not tested"
    if mine > releases[-1]:
        return "newer than tested"
    return "older than tested" if mine < releases[0] else "tested"


def _release(text: str) -> tuple[int, ...]:
    """The numbers of a version without zeros at the end; builds (+cpu), previews as their release."""
    match = re.match(r"\d+(\.\d+)*", text)
    numbers = [int(part) for part in match[0].split(".")] if match else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)

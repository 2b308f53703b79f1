"""Long results that several attempts got, or one got twice: written once, with a name that stands for them.

    <R1> {"flights": [...]}       among what the attempts share
    result <R1>                   wherever it came back

No text of an agent can hold such a name, because a `<` of its own is escaped.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from strop.judge.budget import size
from strop.judge.transcript import Line

REPEATED_CHARS = 300
"""Shorter results are shown wherever they came back."""


def name_repeats(attempts: Sequence[Sequence[Line]], room: int) -> dict[str, str]:
    """Names of the results to show once, by text, in order of first occurrence, as far as `room` bytes go."""
    counts = Counter(line.text for lines in attempts for line in lines if _is_long(line))
    names: dict[str, str] = {}
    for text, count in counts.items():
        name = f"<R{len(names) + 1}>"
        needed = size(definition(name, text)) + 1
        if count > 1 and needed <= room:
            names[text] = name
            room -= needed
    return names


def with_names(lines: Sequence[Line], names: Mapping[str, str]) -> list[Line]:
    """The lines with each named result replaced by its name."""
    if not names:
        return list(lines)
    return [
        Line(line.head, names[line.text]) if _is_long(line) and line.text in names else line for line in lines
    ]


def definition(name: str, text: str) -> str:
    """The line that says what a name stands for."""
    return f"{name} {text}"


def _is_long(line: Line) -> bool:
    return len(line.text) >= REPEATED_CHARS and line.is_result and not line.images

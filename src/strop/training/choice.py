"""Which of the evaluated policies is the best so far, and since when there was no gain. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

Line = Mapping[str, Any]
By = Literal["truth", "win_rate"]
EVEN = 0.5


def chosen_by(lines: Sequence[Line]) -> By:
    """What evaluations are compared by: truth where it was known before training, else the win rate."""
    return "truth" if lines and _estimate(lines[0], "truth") is not None else "win_rate"


def value(line: Line, by: By) -> float | None:
    """The number that is compared; before training the policy is even with itself. None: not known."""
    return EVEN if by == "win_rate" and line["steps"] == 0 else _estimate(line, by)


def best(lines: Sequence[Line]) -> Line | None:
    """The evaluation with the highest number, the earliest of equal ones; None where no number is known."""
    by = chosen_by(lines)
    known = [line for line in lines if value(line, by) is not None]
    return max(known, key=lambda line: value(line, by) or 0.0, default=None)


def without_gain(lines: Sequence[Line]) -> int:
    """Evaluations with a number after the best one."""
    top, by = best(lines), chosen_by(lines)
    if top is None:
        return 0
    return sum(line["steps"] > top["steps"] and value(line, by) is not None for line in lines)


def _estimate(line: Line, name: str) -> float | None:
    found = line.get(name)
    return None if found is None else found["estimate"]

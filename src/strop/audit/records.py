"""A run's verdicts and grades as values; what cannot be read is said with its file and line."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from strop.errors import InputError
from strop.grader.codec import from_json
from strop.grader.grade import Graded
from strop.judge.verdict import Verdict
from strop.store.run import Kind, Run

T = TypeVar("T")


def verdicts(run: Run, part: str) -> list[Verdict]:
    """The verdicts of a part, none where it has none. Raises InputError, another schema version included."""
    return _read(run, "verdicts", part, Verdict.from_json)


def grades(run: Run, part: str) -> list[Graded]:
    """The graded trajectories of a part, none where it has none. Raises InputError as `verdicts` does."""
    return _read(run, "grades", part, from_json)


def _read(run: Run, kind: Kind, part: str, make: Callable[[Mapping[str, Any]], T]) -> list[T]:
    if part not in run.parts(kind):
        return []
    lines = run.read_verdicts(part) if kind == "verdicts" else run.read_grades(part)
    made = []
    for number, line in enumerate(lines, start=1):
        try:
            made.append(make(line))
        except InputError as error:
            raise InputError(f"{run.part_path(kind, part)}:{number}: {error}") from error
    return made

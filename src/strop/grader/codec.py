"""Grades as JSON lines: one object a trajectory, with a schema version."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from strop.errors import InputError
from strop.grader.grade import Graded, StepGrade

SCHEMA = 1


def to_json(graded: Graded) -> dict[str, Any]:
    """The object of one line: the fields of `Graded`, `schema`, and `sum`, `mean`, `min_step` (the
    lowest step's grade) and `argmin_step` (its index) for readers that do no arithmetic."""
    lowest = graded.lowest
    return {
        "schema": SCHEMA,
        **asdict(graded),
        "sum": graded.sum,
        "mean": graded.mean,
        "min_step": lowest.grade if lowest else None,
        "argmin_step": lowest.index if lowest else None,
    }


def from_json(line: Mapping[str, Any]) -> Graded:
    """What `to_json` was given. Raises InputError for another schema and for a field that is missing."""
    if line.get("schema") != SCHEMA:
        raise InputError(f"grades of schema {line.get('schema')!r}: this strop reads {SCHEMA}; grade again")
    try:
        return Graded(
            trajectory_id=line["trajectory_id"],
            scenario_id=line["scenario_id"],
            group_id=line["group_id"],
            beta=line["beta"],
            steps=tuple(StepGrade(**step) for step in line["steps"]),
            ungraded=line["ungraded"],
            truth=line["truth"],
            first_wrong_step=line["first_wrong_step"],
        )
    except (KeyError, TypeError) as error:
        raise InputError(f"grades of {line.get('trajectory_id')}: {error}") from error


def dumps(graded: Graded) -> str:
    """One line without its line break; never NaN or Infinity."""
    return json.dumps(to_json(graded), allow_nan=False, ensure_ascii=False)


def loads(text: str) -> Graded:
    """The inverse of `dumps`. Raises InputError where the line is not a JSON object."""
    try:
        line = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"grades: not JSON ({error})") from error
    if not isinstance(line, dict):
        raise InputError("grades: a line must be a JSON object")
    return from_json(line)

"""Grades as JSON lines: one object a trajectory, with a schema version."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from strop.errors import InputError
from strop.grader.grade import Graded, StepGrade, UnscoredStep
from strop.grader.recipe import grid
from strop.grader.step_readings import WHOLE, readings_from_json, readings_to_json

SCHEMA = 1
_PLAIN = ("trajectory_id", "scenario_id", "group_id", "beta", "ungraded", "truth", "first_wrong_step")


def to_json(graded: Graded) -> dict[str, Any]:
    """The object of one line: the fields of `Graded`, `schema`, and for readers that do no arithmetic
    `sum`, `mean`, `min_step` (the lowest step's grade), `argmin_step` (its index), `trajectory` (every
    score of the whole by reference, see `recipe.grid`) and, of each reference after the first,
    `step_scores`, the column of its step grades."""
    lowest = graded.lowest
    references = list(graded.steps[0].readings) if graded.steps else []
    extra: dict[str, Any] = {}
    if references:
        extra["trajectory"] = {name: grid(graded, name) for name in references}
    if len(references) > 1:
        extra["step_scores"] = {f"grade over {name}": _column(graded, name) for name in references[1:]}
    return {
        "schema": SCHEMA,
        **{name: getattr(graded, name) for name in _PLAIN},
        "steps": [_step_to_json(step) for step in graded.steps],
        "unscored": [asdict(step) for step in graded.unscored],
        **extra,
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
            steps=tuple(_step_from_json(step) for step in line["steps"]),
            unscored=tuple(UnscoredStep(**step) for step in line.get("unscored", ())),
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


def _column(graded: Graded, reference: str) -> list[float]:
    return [graded.beta * step.readings[reference][WHOLE].ratio.sum for step in graded.steps]


def _step_to_json(step: StepGrade) -> dict[str, Any]:
    """All fields; those that say nothing are left out."""
    fields = {name: getattr(step, name) for name in StepGrade.__dataclass_fields__}
    fields |= {"spans": dict(step.spans), "readings": readings_to_json(step.readings)}
    quiet = {"readings": {}, "context_lost": 0, "tokens": None}
    return {name: value for name, value in fields.items() if name not in quiet or value != quiet[name]}


def _step_from_json(fields: Mapping[str, Any]) -> StepGrade:
    return StepGrade(**{**fields, "readings": readings_from_json(fields.get("readings", {}))})

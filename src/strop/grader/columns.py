"""Scores from elsewhere beside the grades: a judge's, Monte-Carlo step values, a trained reward model's.

A line of a grades file may hold `scores`, an object of names to numbers (one a run), and `step_scores`, an
object of names to lists, one number a graded step or one an assistant message, null for a step that has none
(`unscored_by`, by name, says why). A file of its own has lines
with `trajectory_id` and `score`, a number, or `step_scores`, a list; a line of verdicts, with `group_id`, has
`scores` of several runs. Higher is better everywhere.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from strop.errors import InputError
from strop.grader.baselines import RunScore, StepScore
from strop.grader.grade import Graded
from strop.grader.ratio import Floats
from strop.trajectory.fields import Place

Units = Literal["runs", "steps"]


@dataclass(slots=True, kw_only=True)
class Column:
    """One named score: `runs` by trajectory id, `steps` by trajectory id, one number a step, nan for none."""

    name: str
    runs: dict[str, float] = field(default_factory=dict)
    steps: dict[str, Floats] = field(default_factory=dict)

    def covers(self, graded: Graded, what: Units = "runs") -> bool:
        """Whether it scores this run, or for "steps" a graded step of it; a column of runs says nothing of
        steps, and so lacks none."""
        run = graded.trajectory_id
        if what == "runs" and self.runs:
            return run in self.runs
        if run in self.steps:
            return bool(np.isfinite(self.of_steps(graded)).any())
        return what == "steps" and not self.steps

    def run_scores(self) -> dict[str, RunScore]:
        """By name: the score of a run, or where there are scores of steps only, their mean and lowest. Steps
        without a score are left out."""
        if self.runs:
            return {self.name: lambda g: self.runs[g.trajectory_id]}
        return {
            f"{self.name} (mean step)": lambda g: float(np.nanmean(self.of_steps(g))),
            f"{self.name} (lowest step)": lambda g: float(np.nanmin(self.of_steps(g))),
        }

    def step_scores(self) -> dict[str, StepScore]:
        """By name: the scores of the steps, if it has any; a step without one is the last to be suspected."""
        if not self.steps:
            return {}
        return {self.name: lambda g: np.nan_to_num(self.of_steps(g), nan=np.inf, posinf=np.inf)}

    def of_steps(self, graded: Graded) -> Floats:
        """One number a graded step, [K], nan for none. Raises InputError where they do not line up."""
        values, places = self.steps[graded.trajectory_id], [s.index for s in graded.steps]
        if len(values) == len(places):
            return values
        if max(places) >= len(values):
            raise InputError(
                f"{self.name}: {len(values)} step scores of {graded.trajectory_id}, which has "
                f"{len(places)} graded steps; give one for each, or one for each assistant message"
            )
        return values[places]


def read_inline(lines: Iterable[tuple[str, Mapping[str, Any]]]) -> dict[str, Column]:
    """Columns by name that lines (place, object) of a grades file hold. Raises InputError."""
    columns: dict[str, Column] = {}
    for where, line in lines:
        place, run = Place(where), str(line.get("trajectory_id"))
        for name, value in place.numbers(line, "scores").items():
            columns.setdefault(name, Column(name=name)).runs[run] = value
        for name, values in place.mapping(line, "step_scores").items():
            steps = _steps(place, values, f"step_scores.{name}")
            columns.setdefault(name, Column(name=name)).steps[run] = steps
    return columns


def read_column(name: str, lines: Iterable[tuple[str, Mapping[str, Any]]]) -> Column:
    """The column that a file of its own holds. Raises InputError for a line with neither form of score.

    A verdict without scores, as of a judge that failed, says nothing of its runs.
    """
    column = Column(name=name)
    for where, line in lines:
        place = Place(where)
        if "trajectory_id" not in line and "group_id" in line:
            column.runs |= place.numbers(line, "scores") if line.get("scores") is not None else {}
            continue
        run = place.identifier(line, "trajectory_id")
        if run is None:
            place.refuse("no trajectory_id; name the run that the score is of")
        score, steps = place.number(line, "score"), line.get("step_scores")
        if score is None and steps is None:
            place.refuse("neither score nor step_scores; give a number, or a list with one a step")
        if score is not None:
            column.runs[run] = score
        if steps is not None:
            column.steps[run] = _steps(place, steps, "step_scores")
    return column


def covered(
    graded: Sequence[Graded], columns: Sequence[Column], what: Units = "runs"
) -> tuple[list[Graded], dict[str, int]]:
    """Runs that every column scores, or scores a step of, so that all are set against each other on the same
    runs, and how many were left out for want of which. Raises InputError where steps do not line up."""
    kept, lost = [], dict.fromkeys((f"no score of {c.name}" for c in columns), 0)
    for one in graded:
        missing = [c.name for c in columns if one.steps and not c.covers(one, what)]
        if missing:
            lost[f"no score of {missing[0]}"] += 1
            continue
        for column in columns:
            if one.steps and one.trajectory_id in column.steps:
                column.of_steps(one)
        kept.append(one)
    return kept, {reason: count for reason, count in lost.items() if count}


def _steps(place: Place, values: Any, name: str) -> Floats:
    if not isinstance(values, list) or not values:
        place.refuse(f"{name} must be a list with a number a step")
    return np.array([np.nan if value is None else place.finite(value, name) for value in values])

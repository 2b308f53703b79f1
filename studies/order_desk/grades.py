"""Grades of attempts by a policy against the reference it was trained from, and against a wrong one."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from strop import app
from strop.grader.codec import loads, to_json
from strop.grader.grade import Graded, StepGrade
from strop.grader.step_readings import WHOLE
from strop.trajectory.lines import numbered_lines, write_objects
from studies.order_desk.policies import reference

RIGHT, WRONG = "warmstart", "base"


def graded(attempts: Path, policy: Path, out: Path) -> Path:
    """The grades file, every reading against both references; streamed, and gone on with if stopped."""
    if not out.exists():
        out.parent.mkdir(parents=True, exist_ok=True)
        references = (str(reference()), WRONG)
        app.grade_file(app.GradeJob(file=attempts, out=out, policy=str(policy), references=references))
    return out


def read(file: Path) -> Iterator[Graded]:
    """The grades of a file."""
    return (loads(text) for _, text in numbered_lines(file))


def against(one: Graded, name: str) -> Graded:
    """The same attempt as if `name` had been the only reference."""
    return replace(one, steps=tuple(_against(step, name, one.beta) for step in one.steps))


def write(graded: Sequence[Graded], out: Path) -> Path:
    """A grades file."""
    write_objects(out, map(to_json, graded))
    return out


def as_scores(graded: Sequence[Graded]) -> list[dict[str, Any]]:
    """The grades as a baseline beside others: their sum for the run, and each step's own."""
    return [
        {"trajectory_id": g.trajectory_id, "score": g.sum, "step_scores": [s.grade for s in g.steps]}
        for g in graded
        if g.steps
    ]


def _against(step: StepGrade, name: str, beta: float) -> StepGrade:
    spans = step.readings[name]
    whole = spans[WHOLE]
    return replace(
        step,
        grade=beta * whole.ratio.sum,
        mean=beta * whole.ratio.mean,
        reference_logprob=whole.reference.sum,
        spans={kind: beta * of.ratio.sum for kind, of in spans.items() if kind != WHOLE},
        readings={name: spans},
    )

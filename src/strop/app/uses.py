"""What grades are good for: choose among attempts, foresee success, find the step that broke a run."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from strop.errors import InputError
from strop.grader.attribute import MEAN_RULE, attribute, constants
from strop.grader.baselines import OWN, RUNS, STEPS, RunScore, StepScore
from strop.grader.codec import from_json
from strop.grader.columns import Column, Units, covered, read_column, read_inline
from strop.grader.grade import Graded
from strop.grader.labels import Label, labelled, read_labels, tool_call_scores
from strop.grader.nested import nested_attribute, nested_predict, nested_select
from strop.grader.predict import predict
from strop.grader.readings import centred_runs, centred_steps
from strop.grader.reliability import reliability
from strop.grader.select import curves, select
from strop.seeds import generator
from strop.trajectory.lines import numbered_lines, parse_object


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A grades file, and what is known beside it: `truth` a file of truths (a trajectory file will do),
    `baselines` files of further scores by name. `success` is the truth that counts as one. `nested`: also
    choose a reading of the grades inside cross-validation."""

    file: Path
    truth: Path | None = None
    baselines: Mapping[str, Path] = field(default_factory=dict)
    success: float = 1.0
    seed: int = 0
    nested: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class _Evidence:
    """`own` and `own_steps` are other readings of the grades; `runs` and `steps` the baselines."""

    graded: list[Graded]
    lost: dict[str, int]
    own: dict[str, RunScore]
    own_steps: dict[str, StepScore]
    runs: dict[str, RunScore]
    steps: dict[str, StepScore]


def select_best(asked: Asked) -> dict[str, Any]:
    """Best of N by scenario: the default grade, every baseline, and the whole curve of each. JSON object."""
    found = _evidence(asked)
    rng = generator(asked.seed, "select")
    comparison = select(found.graded, rng, other=found.own, nulls=found.runs)
    return {
        **_head(asked, found),
        **comparison.to_json(),
        "best_of": curves(found.graded, {**found.own, **found.runs}, rng).to_json(),
        "nested": nested_select(found.graded, rng).to_json() if asked.nested else None,
    }


def predict_success(asked: Asked) -> dict[str, Any]:
    """AUROC of success and of every baseline; precision, risk–coverage, calibration, thresholds. JSON
    object."""
    found = _evidence(asked)
    rng = generator(asked.seed, "predict")
    comparison = predict(found.graded, rng, success=asked.success, other=found.own, nulls=found.runs)
    return {
        **_head(asked, found),
        **comparison.to_json(),
        **reliability(found.graded, rng, success=asked.success, scores={**found.own, **found.runs}),
        "nested": nested_predict(found.graded, rng, success=asked.success).to_json()
        if asked.nested
        else None,
    }


def attribute_failures(asked: Asked) -> dict[str, Any]:
    """Which step broke a failed run: the grade's rules beside every baseline and constant. JSON object."""
    found = _evidence(asked, "steps")
    rng = generator(asked.seed, "attribute")
    comparison = attribute(found.graded, rng, success=asked.success, other=found.own_steps, nulls=found.steps)
    return {
        **_head(asked, found),
        **comparison.to_json(),
        "constants": constants(found.graded, rng, success=asked.success),
        "nested": nested_attribute(found.graded, rng, success=asked.success).to_json()
        if asked.nested
        else None,
    }


def read_graded(file: Path) -> list[Graded]:
    """The runs of a grades file. Raises InputError with file and line."""
    return [_graded(where, line) for where, line in _objects(file)]


def read_truths(file: Path | None) -> dict[str, Label]:
    """What a file of truths says; nothing for no file."""
    return read_labels(_objects(file)) if file else {}


def _evidence(asked: Asked, what: Units = "runs") -> _Evidence:
    lines = list(_objects(asked.file))
    graded = [_graded(where, line) for where, line in lines]
    if not graded:
        raise InputError(f"{asked.file}: no grades in it")
    labels = read_truths(asked.truth)
    if labels:
        graded = labelled(graded, labels)
    columns = [*read_inline(lines).values()]
    columns += [read_column(name, _objects(path)) for name, path in asked.baselines.items()]
    _check_names(columns)
    kept, lost = covered(graded, columns, what)
    runs = {name: score for column in columns for name, score in column.run_scores().items()}
    steps = {name: score for column in columns for name, score in column.step_scores().items()}
    return _Evidence(
        graded=kept,
        lost=lost,
        own={**OWN, **centred_runs(kept)},
        own_steps={**MEAN_RULE, **centred_steps(kept)},
        runs={**RUNS, **tool_call_scores(kept, labels), **runs},
        steps={**STEPS, **steps},
    )


def _check_names(columns: list[Column]) -> None:
    taken = {*RUNS, *STEPS, *OWN}
    for column in columns:
        if column.name in taken:
            raise InputError(f"a score named {column.name!r} is there already; give it another name")
        taken.add(column.name)


def _head(asked: Asked, found: _Evidence) -> dict[str, Any]:
    return {
        "file": str(asked.file),
        "seed": asked.seed,
        "runs": len(found.graded),
        "scenarios": len({g.scenario_id for g in found.graded}),
        "left_out": found.lost,
    }


def _graded(where: str, line: Mapping[str, Any]) -> Graded:
    try:
        return from_json(line)
    except InputError as error:
        raise InputError(f"{where}: {error}") from error


def _objects(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, text in numbered_lines(file):
        where = f"{file}:{number}"
        yield where, parse_object(text, where=where)

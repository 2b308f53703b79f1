"""Fit a guard on labelled runs, see what it holds of fresh ones, and put it before a served policy."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from strop.app.uses import read_graded, read_truths
from strop.engine import Engine
from strop.errors import InputError
from strop.grader.grade import Graded
from strop.grader.guard import Call, Rule, Score, calls, fit, from_json, held, out_of_fold
from strop.grader.labels import labelled
from strop.grader.live import EngineGuard
from strop.inference.approvals import Approvals
from strop.inference.guarding import Action, Guarding
from strop.seeds import generator
from strop.trajectory.atomic import replacing


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledRuns:
    """A grades file and the trajectories it is of, which hold the calls and, unless the grades do, truths."""

    grades: Path
    trajectories: Path
    success: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardServing:
    """How `strop serve` uses a guard. `approval_key` is for whoever approves, and not for agents."""

    file: Path
    approval_key: str
    action: Action = "hold"
    timeout_s: float = 60.0


def fit_guard(
    runs: LabelledRuns, *, tools: Sequence[str], rate: float, score: Score, out: Path, seed: int = 0
) -> dict[str, Any]:
    """Write the rule, and say what it holds of scenarios that it was not fitted on. JSON object."""
    graded = read_graded(runs.grades)
    found, lost = _calls(runs, graded, tools, score)
    rule = fit(found, tools, rate, score=score, beta=_beta(runs, graded))
    with replacing(out) as file:
        file.write(json.dumps(rule.to_json(), indent=2, allow_nan=False).encode() + b"\n")
    return {
        **rule.to_json(),
        "right_calls": sum(call.right is True for call in found),
        "wrong_calls": sum(call.right is False for call in found),
        "unknown_calls": sum(call.right is None for call in found),
        "out_of_fold": out_of_fold(found, rate, generator(seed, "guard")),
        "left_out": lost,
        "out": str(out),
    }


def check_guard(file: Path, runs: LabelledRuns, *, seed: int = 0) -> dict[str, Any]:
    """What a rule holds of runs that it was not fitted on. JSON object."""
    rule = read_rule(file)
    graded = read_graded(runs.grades)
    if (beta := _beta(runs, graded)) != rule.beta:
        raise InputError(f"{runs.grades}: graded with beta {beta}, the guard was fitted at {rule.beta}")
    found, lost = _calls(runs, graded, rule.tools, rule.score)
    return {**held(found, rule, generator(seed, "guard")), "left_out": lost, "guard": str(file)}


def read_rule(file: Path) -> Rule:
    """The rule of a guard file. Raises InputError with its path."""
    try:
        fields = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{file}: cannot be read ({error.strerror}); strop guard fit makes one") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file}: not a guard; strop guard fit makes one") from error
    if not isinstance(fields, dict):
        raise InputError(f"{file}: not a guard; strop guard fit makes one")
    try:
        return from_json(fields)
    except InputError as error:
        raise InputError(f"{file}: {error}") from error


def guarding(serving: GuardServing, engine: Engine) -> Guarding:
    """The guard before this engine's policy. Raises InputError where its file holds none."""
    return Guarding(
        guard=EngineGuard(engine, read_rule(serving.file)),
        approvals=Approvals(serving.approval_key),
        action=serving.action,
        timeout_s=serving.timeout_s,
    )


def _calls(
    runs: LabelledRuns, graded: list[Graded], tools: Sequence[str], score: Score
) -> tuple[list[Call], dict[str, int]]:
    labels = read_truths(runs.trajectories)
    found, lost = calls(labelled(graded, labels), labels, tools, score=score, success=runs.success)
    if not found:
        raise InputError(f"{runs.trajectories}: no graded step calls {', '.join(tools)}")
    return found, lost


def _beta(runs: LabelledRuns, graded: Sequence[Graded]) -> float:
    betas = {one.beta for one in graded}
    if len(betas) != 1:
        raise InputError(f"{runs.grades}: grades of {len(betas)} different betas; grade again with one")
    return betas.pop()

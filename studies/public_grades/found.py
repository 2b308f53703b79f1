"""Grade a drawn part of each public log and put its grades to use, by the functions behind the verbs."""

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from strop.app import Asked, attribute_failures, predict_success, select_best
from strop.app.grading import GradeJob, grade_file
from strop.app.progress import OnProgress, silent
from strop.app.rewarding import RewardAsked
from strop.app.uses import read_graded
from strop.grader.baselines import StepScore
from strop.grader.columns import read_inline
from strop.grader.grade import Graded
from strop.seeds import generator
from strop.trajectory import codec
from strop.trajectory.lines import read_objects, write_objects
from strop.trajectory.model import Trajectory
from studies.public_grades.logs import PublicLog, Use
from studies.public_grades.share import drawn
from studies.public_grades.steps import LONGEST, agents, shortness, wrong_steps

USES: Mapping[Use, Callable[[Asked], dict[str, Any]]] = {
    "select": select_best,
    "predict": predict_success,
    "attribute": attribute_failures,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Who grades, as `strop grade` takes it, and how much of each log: `share` of its scenarios."""

    policy: str
    reference: str
    model: str = "smollm2"
    share: float = 1.0
    max_length: int | None = 2048
    rewards: tuple[RewardAsked, ...] = ()
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFound:
    """One log. `drawn` and `whole` count runs and scenarios; `graded` runs, steps and tokens; `found` has the
    JSON object of each use by name."""

    log: PublicLog
    drawn: tuple[int, int]
    whole: tuple[int, int]
    graded: Mapping[str, int]
    found: Mapping[str, Mapping[str, Any]]


def log_found(log: PublicLog, setting: Setting, work: Path, progress: OnProgress = silent) -> LogFound:
    """Everything of one log. What is graded stays in `work`, and is not graded again for the same setting.

    Raises InputError where the data are missing, ModelError for models that cannot be read.
    """
    everything = log.trajectories()
    runs = drawn(everything, setting.share, generator(setting.seed, "public grades", log.name))
    file, grades = _graded(log, runs, setting, work, progress)
    graded = read_graded(grades)
    asked = Asked(
        file=grades,
        truth=file if log.text == "chat" else None,
        baselines=_lengths(log, runs, work),
        seed=setting.seed,
        nested=False,
    )
    found: dict[str, Mapping[str, Any]] = {use: USES[use](asked) for use in log.uses}
    return LogFound(
        log=log,
        drawn=_counts(runs),
        whole=_counts(everything),
        graded={
            "runs": sum(bool(g.steps) for g in graded),
            "steps": sum(len(g.steps) for g in graded),
            "unscored_steps": sum(len(g.unscored) for g in graded),
            "tokens": sum(s.n_tokens for g in graded for s in g.steps),
            "beyond_context": sum(s.context_lost > 0 for g in graded for s in g.steps),
        },
        found={**found, **_labels(graded, runs, grades)},
    )


def _lengths(log: PublicLog, runs: Sequence[Trajectory], work: Path) -> dict[str, Path]:
    """The null of a log whose every message is a step: the longest broke the run."""
    if log.text != "plain-all":
        return {}
    longest = work / f"{_slug(log)}-longest.jsonl"
    write_objects(
        longest, ({"trajectory_id": run.trajectory_id, "step_scores": shortness(run)} for run in runs)
    )
    return {LONGEST: longest}


def _graded(
    log: PublicLog, runs: Sequence[Trajectory], setting: Setting, work: Path, progress: OnProgress
) -> tuple[Path, Path]:
    """The trajectory file and its grades."""
    name = f"{_slug(log)}-{hashlib.sha256(json.dumps(asdict(setting)).encode()).hexdigest()[:12]}"
    file, grades = work / f"{name}.jsonl", work / f"{name}-grades.jsonl"
    codec.write(file, runs)
    if not grades.exists():
        grade_file(
            GradeJob(
                file=file,
                out=grades,
                policy=setting.policy,
                references=(setting.reference,),
                model=setting.model,
                text=log.text,
                max_length=setting.max_length,
                rewards=setting.rewards,
                progress=progress,
            )
        )
    return file, grades


def _labels(graded: Sequence[Graded], runs: Sequence[Trajectory], grades: Path) -> dict[str, dict[str, Any]]:
    """What labels of steps and agents say, where the log has them."""
    lines = [(f"{grades}:{number}", line) for number, line in enumerate(read_objects(grades), start=1)]
    further: dict[str, StepScore] = {}
    for column in read_inline(lines).values():
        further |= column.step_scores()
    known = runs[0].metadata
    if "step_labels" in known:
        return {"steps": wrong_steps(graded, runs, further).to_json()}
    if "mistake_agent" in known:
        return {"agents": agents(graded, runs, further).to_json()}
    return {}


def _counts(runs: Sequence[Trajectory]) -> tuple[int, int]:
    return len(runs), len({run.scenario_id for run in runs})


def _slug(log: PublicLog) -> str:
    return re.sub("[^a-z0-9]+", "-", log.name.lower())

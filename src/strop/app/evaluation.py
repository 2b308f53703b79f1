"""Held-out scenarios every few steps: truth, win rate over the start, the best policy, an early end."""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from strop.app.stage import BEFORE, Rollout, Stage, collected, judged_or_stopped, members
from strop.audit.truth import heldout
from strop.audit.versus import Match, match, revealed, win_rate
from strop.errors import ConfigError
from strop.seeds import generator
from strop.stats.intervals import Estimate, undefined
from strop.store import checkpoints
from strop.training.choice import best, chosen_by, value, without_gain
from strop.trajectory.grouping import grouped
from strop.trajectory.model import Trajectory

SCHEMA = 1


def part(steps: int) -> str:
    """Name of the trajectory file of the evaluation after so many steps."""
    return f"heldout-{steps:04d}" if steps else BEFORE


def versus_part(steps: int) -> str:
    """Name of the trajectory and verdict files of the comparison with the start."""
    return f"versus-{steps:04d}"


def began(stage: Stage) -> None:
    """The line of the policy before training, whose attempts are there already.

    Raises ConfigError where `patience` is asked for and nothing would tell a gain.
    """
    lines = stage.run.evaluations()
    if not stage.config.evaluation.every:
        return
    if not lines:
        attempts = list(stage.run.read_trajectories(BEFORE))
        stage.run.append_evaluation(_line(stage, 0, attempts, None, 0.0))
        lines = stage.run.evaluations()
    if stage.config.evaluation.patience and chosen_by(lines) == "win_rate" and not _compared(stage):
        raise ConfigError(
            "[evaluation] patience: nothing tells a gain, as no attempt has a truth and compared_groups is 0"
        )


async def goes_on(stage: Stage, steps: int) -> bool:
    """Evaluate the policy after `steps` steps where that is due; whether the training is to go on.

    What was recorded of more steps than there are, before a run was set back, is forgotten.
    """
    evaluation = stage.config.evaluation
    if not evaluation.every:
        return True
    if stage.run.drop_evaluations_after(steps):
        _point_best(stage)
    if steps and steps % evaluation.every == 0:
        await evaluated(stage, steps)
    stalled = without_gain(stage.run.evaluations())
    if not evaluation.patience or stalled < evaluation.patience:
        return True
    stage.run.append_event("stopped_early", steps=steps, evaluations_without_gain=stalled)
    return False


async def evaluated(stage: Stage, steps: int) -> None:
    """Attempts at all held-out scenarios, their comparison with those of the start, the best so far, a line.

    Does nothing where the line is there. Killed before that, all of it is done again, to the same end.
    """
    if any(line["steps"] == steps for line in stage.run.evaluations()):
        return
    start = time.perf_counter()
    evaluation, total = stage.config.evaluation, stage.config.training.steps
    what = Rollout(
        part=part(steps),
        attempts=evaluation.attempts,
        told="evaluation",
        step=steps,
        temperature=evaluation.temperature,
    )
    attempts = members(await collected(stage, stage.source.heldout, what))
    stage.run.write_trajectories(part(steps), attempts)
    stage.progress("comparison with the start", step=steps, steps=total)
    rate = await _compare(stage, steps, attempts)
    line = _line(stage, steps, attempts, rate, time.perf_counter() - start)
    if best([*stage.run.evaluations(), line]) is line:
        checkpoints.point_best(stage.run, line["checkpoint"])
    stage.run.append_evaluation(line)
    stage.progress(_told(line), step=steps, steps=total)


def summary(stage: Stage) -> dict[str, Any]:
    """`win_rate` of the last policy, `best` evaluation, all `evaluations`; empty where none is asked for."""
    lines = stage.run.evaluations()
    if not lines:
        return {}
    by, top = chosen_by(lines), best(lines)
    chosen = None
    if top is not None:
        chosen = {"steps": top["steps"], "by": by, by: value(top, by), "checkpoint": top["checkpoint"]}
    return {"win_rate": lines[-1]["win_rate"], "best": chosen, "evaluations": lines}


def seconds(stage: Stage) -> dict[str, float]:
    """Seconds of all evaluations of the run; empty where none were asked for."""
    lines = stage.run.evaluations()
    return {"evaluation": sum(line["seconds"] for line in lines)} if lines else {}


def groups_left(stage: Stage, steps: int) -> int:
    """Groups still to be compared once `steps` steps are done, if nothing ends the training early."""
    every, last = stage.config.evaluation.every, stage.config.training.steps
    due: set[int] = {*range(every, last, every), last} if every else set()
    return len(_compared(stage)) * sum(count > steps for count in due)


async def _compare(stage: Stage, steps: int, attempts: Sequence[Trajectory]) -> Estimate:
    """The win rate over the policy before training, whose attempts are those of that time."""
    scenarios = _compared(stage)
    if not scenarios:
        return undefined("no scenario is compared")
    name, seed = versus_part(steps), stage.config.training.seed
    policy, start = _by_scenario(attempts), _by_scenario(stage.run.read_trajectories(BEFORE))
    matches = [match(policy[s], start[s], name, generator(seed, name, s)) for s in scenarios]
    judged, verdicts = await judged_or_stopped(stage, [each.group for each in matches], name)
    played = [replace(each, group=group) for each, group in zip(matches, judged, strict=True)]
    stage.run.write_verdicts(name, [verdict.to_json() for verdict in verdicts])
    stage.run.write_trajectories(name, _revealed(played))
    return win_rate(played, generator(seed, name))


def _line(
    stage: Stage, steps: int, attempts: Sequence[Trajectory], rate: Estimate | None, seconds: float
) -> dict[str, Any]:
    """`truth` and its `truth_difference` to the start are null where no attempt has one."""
    start = list(stage.run.read_trajectories(BEFORE))
    rng = generator(stage.config.training.seed, "evaluation", steps)
    measured = heldout(start, attempts, rng)
    known = any(t.truth is not None for t in attempts)
    newest = checkpoints.latest(stage.run) if steps else None
    return {
        "schema": SCHEMA,
        "steps": steps,
        "part": part(steps),
        "attempts": len(attempts),
        "failed": sum(t.failure is not None for t in attempts),
        "temperature": stage.config.evaluation.temperature,
        "truth": measured["truth_after"] if known else None,
        "truth_difference": measured["truth_difference"] if known and steps else None,
        "win_rate": None if rate is None else rate.to_json(),
        "checkpoint": None if newest is None else newest.path.name,
        "seconds": seconds,
    }


def _compared(stage: Stage) -> list[str]:
    scenarios = stage.source.heldout[: stage.config.evaluation.compared_groups]
    return [scenario.scenario_id for scenario in scenarios]


def _by_scenario(attempts: Any) -> dict[str, Sequence[Trajectory]]:
    return {group.scenario_id: group.trajectories for group in grouped(attempts)}


def _revealed(matches: Sequence[Match]) -> list[Trajectory]:
    return [attempt for each in matches for attempt in revealed(each)]


def _point_best(stage: Stage) -> None:
    top = best(stage.run.evaluations())
    checkpoints.point_best(stage.run, None if top is None else top["checkpoint"])


def _told(line: dict[str, Any]) -> str:
    """The numbers in the words of a progress line."""
    shown = [("truth", line["truth"]), ("win rate over the start", line["win_rate"])]
    words = [
        f"{name} {found['estimate']:.3f}" for name, found in shown if found and found["estimate"] is not None
    ]
    return f"evaluated: {', '.join(words) or 'no number'}"

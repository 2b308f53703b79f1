"""A whole run: look at the policy before, train it, look again, grade every step, audit both graders."""

import asyncio
import os
import resource
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from strop.app import building, evaluation
from strop.app.judging import Bench, bench, shipped
from strop.app.progress import OnProgress, silent
from strop.app.sources import source
from strop.app.stage import AFTER, BEFORE, JUDGED, Rollout, Stage, collected, judged_or_stopped, members
from strop.app.steps import Steps
from strop.audit import records
from strop.audit.cost import counts, seconds_by_stage
from strop.audit.curve import curve
from strop.audit.summary import Evidence, audit
from strop.config import RunConfig, dump, judge_from_environment, load, load_judge
from strop.grader.codec import to_json
from strop.grader.grade import grade
from strop.inference.client import close_connections
from strop.judge.verdict import Verdict
from strop.report.page import render
from strop.seeds import generator
from strop.store.run import Run
from strop.training.loop import TrainPlan, part
from strop.training.loop import train as train_steps
from strop.training.progress import Progress
from strop.trajectory.grouping import grouped
from strop.trajectory.model import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """`run` is the directory to write; `judge` a judge.toml, None: from the environment, or embedded."""

    seed: int = 0
    run: Path = Path("runs/demo-0")
    judge: Path | None = None
    resume: bool = False
    progress: OnProgress = silent


def demo(options: DemoOptions) -> dict[str, Any]:
    """The order desk from warm start to report, on this machine. Returns the summary object."""
    config = load(
        shipped("run.toml"), [f"training.seed={options.seed}", f"run.directory={options.run.absolute()}"]
    )
    judge = load_judge(options.judge) if options.judge else judge_from_environment(os.environ)
    if judge is not None:
        config = config.model_copy(update={"judge": judge})
    return train(config, resume=options.resume, progress=options.progress)


def train(config: RunConfig, *, resume: bool = False, progress: OnProgress = silent) -> dict[str, Any]:
    """Run what the run file asks for and write the run directory. Returns the summary object.

    Raises InputError for a directory that holds a run already, unless `resume`.
    """
    if resume:
        Run.view(config.run.directory)
    else:
        Run.refuse_taken(config.run.directory)
    return asyncio.run(_whole(config, resume=resume, progress=progress))


async def _whole(config: RunConfig, *, resume: bool, progress: OnProgress) -> dict[str, Any]:
    async with _staged(config, resume, progress) as stage:
        await _before(stage)
        await _train(stage, resume=resume)
        await _after(stage)
        with stage.timed("grading"):
            _grade(stage)
        with stage.timed("audits"):
            summary = _summary(stage)
        summary["seconds"]["audits"] = stage.seconds["audits"]
        stage.run.write_summary(summary)
        with stage.timed("report"):
            render(stage.run)
    return summary


@asynccontextmanager
async def _staged(config: RunConfig, resume: bool, progress: OnProgress) -> AsyncIterator[Stage]:
    progress("loading the model")
    began = time.perf_counter()
    limits = building.limits(config)
    where = source(config, limits)
    engine = building.engine(config)
    judge: Bench | None = None
    try:
        judge = bench(config, engine)
        # Only now: a run that could not even begin leaves no directory behind.
        run = Run.open(config.run.directory) if resume else Run.create(config.run.directory, dump(config))
        engine.listen(run.append_event)
        for note in engine.info.notes:
            run.append_event("slow_model", note=note)
        stage = Stage(
            config=config, run=run, engine=engine, bench=judge, source=where, limits=limits, progress=progress
        )
        stage.seconds["loading"] = time.perf_counter() - began
        yield stage
    finally:
        if judge is not None:
            await judge.judge.close()
        await close_connections()
        engine.close()


async def _before(stage: Stage) -> None:
    """Held-out attempts of the untrained policy, and groups of them for the judge to be audited on.

    A resumed run keeps those it has: the policy that made them is no longer served.
    """
    wanted = stage.config.evaluation
    have = stage.run.parts("trajectories")
    if BEFORE not in have and stage.source.heldout:
        with stage.timed(BEFORE):
            await _look(stage, BEFORE)
    if stage.source.heldout:
        evaluation.began(stage)
    if JUDGED not in have and wanted.judged_groups and stage.source.heldout:
        with stage.timed(JUDGED):
            scenarios = stage.source.heldout[: wanted.judged_groups]
            what = Rollout(part=JUDGED, attempts=wanted.judged_attempts, told=JUDGED)
            groups = await collected(stage, scenarios, what)
            stage.progress(JUDGED)
            await _judge_heldout(stage, groups)


async def _train(stage: Stage, *, resume: bool) -> None:
    config = stage.config
    steps, work = config.training.steps, Steps(stage)

    def told(progress: Progress) -> None:
        stage.progress(progress.stage, step=progress.step, steps=steps)

    async def goes_on(step: int) -> bool:
        return await evaluation.goes_on(stage, step)

    plan = TrainPlan(
        collect=work.attempts,
        score=work.scores,
        engine=stage.engine,
        run=stage.run,
        steps=steps,
        resume=resume,
        rule=building.rule(config),
        updates=config.training.updates_per_step,
        max_judge_failures=config.judge.max_failures_in_a_row,
        keep_checkpoints=config.training.keep_checkpoints,
        max_staleness=config.training.max_staleness,
        goes_on=goes_on,
        progress=told,
    )
    await train_steps(plan)


async def _after(stage: Stage) -> None:
    if not stage.source.heldout:
        return
    if not stage.config.evaluation.every:
        with stage.timed(AFTER):
            await _look(stage, AFTER)
        return
    steps = len(stage.run.steps())
    await evaluation.evaluated(stage, steps)
    stage.run.write_trajectories(AFTER, list(stage.run.read_trajectories(evaluation.part(steps))))


async def _look(stage: Stage, name: str) -> None:
    """Attempts at all held-out scenarios."""
    wanted = stage.config.evaluation
    what = Rollout(part=name, attempts=wanted.attempts, told=name, temperature=wanted.temperature)
    groups = await collected(stage, stage.source.heldout, what)
    stage.run.write_trajectories(name, members(groups))


def _keep(stage: Stage, judged: Sequence[Group], verdicts: Sequence[Verdict], name: str) -> None:
    stage.run.write_verdicts(name, [verdict.to_json() for verdict in verdicts])
    stage.run.write_trajectories(name, members(judged))


async def _judge_heldout(stage: Stage, groups: Sequence[Group]) -> None:
    """Kept only if there was a judge to be audited: a resumed run would not ask again."""
    _keep(stage, *await judged_or_stopped(stage, groups, JUDGED), JUDGED)


def _grade(stage: Stage) -> None:
    """Grade held-out attempts of the untrained policy: many of them fail, so there is what to tell."""
    if BEFORE not in stage.run.parts("trajectories"):
        return
    attempts = list(stage.run.read_trajectories(BEFORE))
    lines = []
    for one in grade(attempts, stage.engine, decode=stage.engine.decode, batch=64):
        lines.append(to_json(one))
        stage.progress("grading", len(lines), len(attempts))
    stage.run.write_grades(BEFORE, lines)


def _summary(stage: Stage) -> dict[str, Any]:
    run, seed = stage.run, stage.config.training.seed
    lines = run.steps()
    groups = counts(lines, "groups")
    fates = counts(lines, "trajectories")
    trained = {line["step"]: list(run.read_trajectories(part(line["step"]))) for line in lines}
    found = audit(_evidence(run), generator(seed, "audit"))
    return {
        **found,
        **evaluation.summary(stage),
        "tied_share": groups["tied"] / groups["all"] if groups.get("all") else None,
        "unscored": fates.get("unscored", 0) + fates.get("failed", 0),
        "steps": len(lines),
        "groups": groups,
        "trajectories": fates,
        "curve": curve(trained, generator(seed, "curve")),
        "seconds": {**stage.seconds, **evaluation.seconds(stage), **seconds_by_stage(lines)},
        "judge_cost": stage.bench.judge.ledger.totals(),
        "peak_rss_mb": _peak_rss_mb(),
        "run": str(run.path),
        "report": str(run.path / "report.html"),
    }


def _evidence(run: Run) -> Evidence:
    have = run.parts("trajectories")
    judged = list(run.read_trajectories(JUDGED)) if JUDGED in have else []
    return Evidence(
        before=list(run.read_trajectories(BEFORE)) if BEFORE in have else [],
        after=list(run.read_trajectories(AFTER)) if AFTER in have else [],
        judged=grouped(judged),
        verdicts=records.verdicts(run, JUDGED) if judged else [],
        graded=records.grades(run, BEFORE),
    )


def _peak_rss_mb() -> int:
    """Peak resident memory of this process in MiB: Linux counts in KiB, macOS in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (1024 if sys.platform != "darwin" else 1024**2))

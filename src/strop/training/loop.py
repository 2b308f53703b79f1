"""The six steps: rollout, judge, advantages, update, checkpoint, publish."""

import math
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from strop.engine import Engine
from strop.errors import EngineError, JudgeStopped
from strop.store import checkpoints
from strop.store.run import Run
from strop.training.accounting import Update, finished_line, step_line, why_skipped
from strop.training.ahead import Ahead, aside
from strop.training.batch import AdvantageRule, Batch, training_batch
from strop.training.inspection import keep_for_inspection
from strop.training.judge_watch import JudgeWatch
from strop.training.progress import OnProgress, StageClock, ignore
from strop.training.resume import first_step
from strop.training.staleness import Bound
from strop.trajectory.model import Group, Trajectory

RATIO_BOUND = 0.05
"""How far the mean ratio of learner to sampler may be from 1 while both are the same policy."""


async def always(_step: int) -> bool:
    """For a training that nothing ends early."""
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainPlan:
    """Everything a run needs.

    `collect(step)` gives the attempts of a step and `score(groups, step)` the same groups judged:
    every trajectory with a score or a reason why not. Both must depend on the step and the served
    policy alone, then a resumed run repeats an uninterrupted one. `max_judge_failures` groups in a
    row without a verdict stop the run (0: never). `updates` optimizer steps share the rows of a step,
    each on a part of them. `goes_on(step)` is asked before each step, when `step` are done and the policy
    after them is served; False ends the training. `now` is the clock that times the stages.

    Up to `max_staleness` steps are collected ahead, while earlier ones are judged and trained, by policies
    up to so many versions older than the one that is trained; older rows are dropped. The engine then works
    in a thread beside the event loop.
    """

    collect: Callable[[int], Awaitable[Sequence[Group]]]
    score: Callable[[Sequence[Group], int], Awaitable[Sequence[Group]]]
    engine: Engine
    run: Run
    steps: int
    start_step: int = 0
    resume: bool = False
    rule: AdvantageRule = field(default_factory=AdvantageRule)
    updates: int = 1
    max_judge_failures: int = 8
    keep_checkpoints: int = 2
    max_staleness: int = 0
    goes_on: Callable[[int], Awaitable[bool]] = always
    progress: OnProgress = ignore
    now: Callable[[], float] = time.perf_counter


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainResult:
    """`first_step` is where this process began; `lines` are all steps of the run, as in steps.jsonl."""

    first_step: int
    lines: Sequence[dict[str, Any]]


async def train(plan: TrainPlan) -> TrainResult:
    """Run the steps from `start_step`, or from where the run stopped, to `steps`.

    Killed anywhere and resumed, it ends with the same lines and the same adapter. With `max_staleness` above
    0 what was sampled ahead is lost with the process and sampled anew by a newer policy: every step is then
    still done once, on rows within the bound, but not to the same numbers. A cancelled run stops between two
    stages. A step without a trainable row updates and publishes nothing and says why. Raises JudgeStopped
    for a dead judge (the step is not counted, its rollouts are kept), EngineError for a loss or gradient
    that is not finite (the batch is kept for inspection, the last checkpoint stands), PublishError where
    the probe fails.
    """
    first = first_step(plan.run, plan.engine, start=plan.start_step, resume=plan.resume)
    watch = JudgeWatch(plan.max_judge_failures)
    clock = StageClock(plan.steps, plan.progress, plan.now)
    ahead = Ahead(plan.collect, plan.max_staleness, plan.steps)
    try:
        for step in range(first, plan.steps):
            if not await plan.goes_on(step):
                break
            async with clock.stage("rollout", step):
                groups = await ahead.take(step)
                plan.run.write_trajectories(part(step), _trajectories(groups))
            async with clock.stage("judge", step):
                groups = await plan.score(groups, step)
                plan.run.write_trajectories(part(step), _trajectories(groups))
                _stop_if_dead(watch, groups, step, plan.run)
            await _learn(plan, step, groups, clock)
    finally:
        await ahead.abandon()
    return TrainResult(first_step=first, lines=plan.run.steps())


async def _learn(plan: TrainPlan, step: int, groups: Sequence[Group], clock: StageClock) -> None:
    """From judged groups to the step's line: advantages, update, checkpoint, publish."""
    threaded = plan.max_staleness > 0
    async with clock.stage("advantages", step):
        bound = Bound(version=plan.engine.info.policy_version, most=plan.max_staleness)
        batch = training_batch(groups, plan.rule, bound)
    async with clock.stage("update", step):
        update = await aside(lambda: _update(plan, step, batch), threaded=threaded)
    line = step_line(step, groups, batch, update)
    published = None
    if update.skipped is None:
        # The checkpoint comes before the line, and holds it: `latest` moving is the one instant in which
        # a step becomes done. Killed before it, the step is done again; after it, resume writes the line
        # and publishes. A line without its checkpoint, or an update applied twice, cannot come about.
        async with clock.stage("checkpoint", step):
            manifest = {"line": line, "seconds": clock.seconds}
            await aside(lambda: _keep(plan, step, manifest), threaded=threaded)
        async with clock.stage("publish", step):
            published = await aside(plan.engine.publish, threaded=threaded)
    plan.run.append_step(finished_line(line, published, clock.seconds))


def part(step: int) -> str:
    """Name of a step's trajectory and verdict files."""
    return f"train-{step:04d}"


def _keep(plan: TrainPlan, step: int, manifest: Mapping[str, Any]) -> None:
    checkpoints.save(plan.run, step, plan.engine.save, manifest)
    checkpoints.prune(plan.run, plan.keep_checkpoints)


def _update(plan: TrainPlan, step: int, batch: Batch) -> Update:
    if not batch.rows:
        return Update(metrics={}, skipped=why_skipped(batch))
    try:
        parts = [_one_update(plan.engine, batch, rows) for rows in _parts(len(batch.rows), plan.updates)]
    except EngineError as error:
        kept = keep_for_inspection(plan.run, step, batch, str(error))
        plan.run.append_event("update_failed", step=step, reason=str(error), batch=kept.name)
        raise EngineError(f"step {step}: {error}; what it was given is in {kept}") from error
    if not any(batch.staleness):
        _note_disagreement(plan.run, step, parts[0])
    tokens = sum(part["tokens"] for part in parts)
    means = {
        name: sum(part[name] * part["tokens"] for part in parts) / tokens if tokens else 0.0
        for name in parts[0]
    }
    return Update(metrics={**means, "tokens": tokens})


def _one_update(engine: Engine, batch: Batch, rows: slice) -> dict[str, float]:
    learned = engine.accumulate(batch.rows[rows], batch.advantages[rows])
    unsound = [name for name, value in learned.items() if not math.isfinite(value)]
    if unsound:
        raise EngineError(f"{', '.join(unsound)} not finite; lower the learning rate and resume")
    return {**learned, **engine.step()}


def _note_disagreement(run: Run, step: int, first: Mapping[str, float]) -> None:
    """An event where what was sampled is not what the served policy would sample.

    Before its first update the policy is the one served, so that the mean ratio is 1 but for rounding. Where
    it is not, an agent asked for a cut distribution (top_p below 1 gives the mass that was kept), or sampler
    and learner are not one model; either way the update is biased.
    """
    ratio = first.get("ratio", 1.0)
    if abs(ratio - 1) > RATIO_BOUND:
        why = "does an agent set top_p? Otherwise sampler and learner differ"
        run.append_event("sampler_disagrees", step=step, ratio=ratio, bound=RATIO_BOUND, hint=why)


def _parts(rows: int, updates: int) -> list[slice]:
    """`rows` cut into `updates` neighbouring parts of nearly equal size; fewer where there are fewer rows."""
    count = min(rows, updates)
    edges = [rows * part // count for part in range(count + 1)]
    return [slice(low, high) for low, high in pairwise(edges)]


def _stop_if_dead(watch: JudgeWatch, groups: Sequence[Group], step: int, run: Run) -> None:
    try:
        watch.look(groups, f"step {step}")
    except JudgeStopped as stopped:
        run.append_event("judge_stopped", step=step, reason=str(stopped))
        raise


def _trajectories(groups: Iterable[Group]) -> Iterable[Trajectory]:
    return (trajectory for group in groups for trajectory in group.trajectories)

"""What all stages of a whole run share, and what several of them do: collect attempts, judge groups."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from strop.app.judging import Bench, nobody_answered
from strop.app.progress import OnProgress
from strop.app.sources import Source
from strop.config import RunConfig
from strop.engines.opening import EmbeddedEngine
from strop.errors import JudgeStopped
from strop.judge.verdict import Verdict
from strop.rollout.environment import Scenario
from strop.rollout.limits import Limits
from strop.rollout.runner import RolloutPlan, collect
from strop.store.run import Run
from strop.training.judge_watch import JudgeWatch
from strop.trajectory.model import Group, Trajectory

BEFORE, AFTER, JUDGED = "heldout-before", "heldout-after", "judged-heldout"


@dataclass(slots=True, kw_only=True)
class Stage:
    """`seconds` collects the time of each stage by name."""

    config: RunConfig
    run: Run
    engine: EmbeddedEngine
    bench: Bench
    source: Source
    limits: Limits
    progress: OnProgress
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Tells that the stage begins, and adds its seconds."""
        self.progress(name)
        began = time.perf_counter()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - began


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """Which attempts to collect: `part` names them in ids, `told` in progress, with `step` of the training
    where there is one. `temperature` None: as the agent asks. `on_group` hears of each group that ended."""

    part: str
    attempts: int
    told: str
    step: int | None = None
    temperature: float | None = None
    on_group: Callable[[Group], None] | None = None


async def collected(stage: Stage, scenarios: Sequence[Scenario], what: Rollout) -> list[Group]:
    """Attempts of the served policy, a group a scenario."""
    steps = 0 if what.step is None else stage.config.training.steps

    def counted(done: int, total: int) -> None:
        stage.progress(what.told, done, total, what.step or 0, steps)

    def lost(trajectory_id: str, reason: str) -> None:
        stage.run.append_event("attempt_lost", trajectory_id=trajectory_id, reason=reason)

    plan = RolloutPlan(
        sessions=stage.engine.gateway,
        attempt=stage.source.attempt,
        part=what.part,
        limits=replace(stage.limits, attempts=what.attempts),
        temperature=what.temperature,
        api_key=stage.engine.api_key,
        on_attempt=counted,
        on_lost=lost,
    )
    if what.on_group is not None:
        plan = replace(plan, on_group=what.on_group)
    return await collect(scenarios, plan)


async def judged_or_stopped(
    stage: Stage, groups: Sequence[Group], part: str
) -> tuple[list[Group], list[Verdict]]:
    """Judged groups outside of training. Raises JudgeStopped for a dead judge, so that nothing is recorded
    and a resumed run asks again."""
    judged, verdicts = await stage.bench.judged(groups, part)
    limit = stage.config.judge.max_failures_in_a_row
    failed = sum(verdict.failure is not None for verdict in verdicts)
    watch = JudgeWatch(min(limit, failed) if nobody_answered(verdicts) else limit)
    try:
        watch.look(judged, part)
    except JudgeStopped as stopped:
        stage.run.append_event("judge_stopped", part=part, reason=str(stopped))
        raise
    return judged, verdicts


def members(groups: Sequence[Group]) -> list[Trajectory]:
    """All trajectories of the groups, in order."""
    return [trajectory for group in groups for trajectory in group.trajectories]

"""The loop over a real (tabular) engine: what it learns, what it counts, and where it may be killed."""

import asyncio
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from strop.engine import Published
from strop.engines.fake import FakeConfig, FakeEngine
from strop.errors import EngineError, InputError, JudgeStopped
from strop.inference.sampling import SamplingParams
from strop.seeds import derive
from strop.store import checkpoints
from strop.store.run import Run
from strop.training.loop import TrainPlan, _parts, part, train
from strop.training.progress import STAGES, Progress
from strop.trajectory.model import Group, Trajectory, Turn

GROUPS, ATTEMPTS, STEPS = 3, 4, 4


End = tuple[list[dict[str, Any]], dict[str, bytes]]


class Killed(BaseException):
    """Stands for kill -9: nothing catches it."""


@dataclass
class World:
    """Attempts sampled from the served policy, scored by their mean token: the higher the better."""

    engine: FakeEngine

    async def collect(self, step: int) -> list[Group]:
        return [await self._group(step, index) for index in range(GROUPS)]

    async def score(self, groups: Sequence[Group], _step: int) -> list[Group]:
        return [scored(group, _mean_token) for group in groups]

    async def _group(self, step: int, index: int) -> Group:
        name = f"s{index}/{part(step)}"
        members = [await self._attempt(name, index, attempt) for attempt in range(ATTEMPTS)]
        return Group(group_id=name, scenario_id=f"s{index}", trajectories=tuple(members))

    async def _attempt(self, name: str, index: int, attempt: int) -> Trajectory:
        prompt = (1 + index, 5)
        params = SamplingParams(max_tokens=4, seed=derive(7, name, attempt))
        drawn = await self.engine.sampler.sample(prompt, params, model="policy")
        turn = Turn(
            prompt_ids=prompt,
            sampled_ids=drawn.ids,
            logprobs=drawn.logprobs,
            finish_reason=drawn.finish_reason,
            message_index=1,
            policy_version=drawn.version,
        )
        said = ({"role": "user", "content": "go"}, {"role": "assistant", "content": str(drawn.ids)})
        return Trajectory(
            trajectory_id=f"{name}/{attempt}",
            scenario_id=f"s{index}",
            group_id=name,
            messages=said,
            turns=(turn,),
            truth=1.0,
        )


def scored(group: Group, score: Callable[[Trajectory], float | None], why: str = "timeout") -> Group:
    def one(member: Trajectory) -> Trajectory:
        value = score(member)
        return replace(member, score=value, unscored=why if value is None else None)

    return replace(group, trajectories=tuple(one(member) for member in group.trajectories))


def _mean_token(member: Trajectory) -> float:
    ids = member.turns[0].sampled_ids
    return sum(ids) / (15 * len(ids))


def fresh_engine() -> FakeEngine:
    return FakeEngine(FakeConfig(learning_rate=0.2))


def plan_for(directory: Path, *, resume: bool = False, **changes: Any) -> TrainPlan:
    engine = fresh_engine()
    world = World(engine)
    run = Run.open(directory) if resume else Run.create(directory, "")
    plan = TrainPlan(
        collect=world.collect,
        score=world.score,
        engine=engine,
        run=run,
        steps=STEPS,
        resume=resume,
        now=lambda: 0.0,
    )
    return replace(plan, **changes)


def ends_with(directory: Path) -> End:
    """All that a run leaves but its wall-clock times, which no two runs share."""
    latest = checkpoints.latest(Run.view(directory))
    assert latest is not None
    engine_files = ("adapter.npy", "optimizer.npy", "engine.json")
    lines = [json.loads(line) for line in (directory / "steps.jsonl").read_text().splitlines()]
    for line in lines:
        del line["seconds"]
    return lines, {n: (latest.path / n).read_bytes() for n in engine_files}


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> End:
    directory = tmp_path_factory.mktemp("runs") / "whole"
    asyncio.run(train(plan_for(directory)))
    return ends_with(directory)


def test_the_policy_learns_what_the_judge_prefers(tmp_path: Path) -> None:
    result = asyncio.run(train(plan_for(tmp_path / "run", steps=60)))
    means = [line["judge_score"]["mean"] for line in result.lines]
    assert sum(means[:8]) / 8 < 0.55
    assert sum(means[-8:]) / 8 > 0.85


def test_a_line_adds_up_and_puts_the_loss_last(tmp_path: Path) -> None:
    line = asyncio.run(train(plan_for(tmp_path / "run", steps=1))).lines[0]
    for kind, total in (("groups", GROUPS), ("trajectories", GROUPS * ATTEMPTS)):
        counts = dict(line[kind])
        assert counts.pop("all") == total == sum(counts.values())
    assert line["step"] == 0
    assert line["updated"] is True
    assert line["published"]["version"] == 1
    assert line["truth"] == {"mean": 1.0, "n": GROUPS * ATTEMPTS}
    assert line["truth_used_for_training"] is False
    assert set(line["seconds"]) == set(STAGES)
    assert list(line)[-1] == "engine"
    assert list(line["engine"])[-1] == "loss"
    assert set(line["engine"]) == {
        "tokens",
        "ratio",
        "mismatch",
        "clip_share",
        "entropy",
        "kl",
        "grad_norm",
        "learning_rate",
        "loss",
    }
    assert line["engine"]["kl"] is None
    assert all(value is not None for name, value in line["engine"].items() if name != "kl")
    assert (line["tied_share"], line["unscored_share"]) == (0.0, 0.0)


def test_turns_carry_the_version_that_was_published_before(tmp_path: Path) -> None:
    run = plan_for(tmp_path / "run", steps=3)
    asyncio.run(train(run))
    versions = [{t.turns[0].policy_version for t in run.run.read_trajectories(part(s))} for s in range(3)]
    assert versions == [{0}, {1}, {2}]


def test_truth_changes_nothing(tmp_path: Path, uninterrupted: End) -> None:
    plan = plan_for(tmp_path / "run")

    async def lied(step: int) -> list[Group]:
        groups = await World(plan.engine).collect(step)  # type: ignore[arg-type]
        return [
            replace(g, trajectories=tuple(replace(t, truth=0.0, first_wrong_step=0) for t in g.trajectories))
            for g in groups
        ]

    asyncio.run(train(replace(plan, collect=lied)))
    assert ends_with(tmp_path / "run")[1] == uninterrupted[1]


class KillAt:
    """Dies at one call of one boundary: before or after the real thing was done."""

    def __init__(self, when: int, after: bool) -> None:
        self._left, self._after = when, after

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **kwargs: Any) -> Any:
            self._left -= 1
            if self._left < 0 and not self._after:
                raise Killed
            result = function(*args, **kwargs)
            if self._left < 0:
                raise Killed
            return result

        return called

    def around_async(self, function: Callable[..., Any]) -> Callable[..., Any]:
        async def called(*args: Any) -> Any:
            self._left -= 1
            result = await function(*args) if self._after or self._left >= 0 else None
            if self._left < 0:
                raise Killed
            return result

        return called


def sabotage(plan: TrainPlan, boundary: str, kill: KillAt, patch: pytest.MonkeyPatch) -> TrainPlan:
    if boundary in ("collect", "score"):
        return replace(plan, **{boundary: kill.around_async(getattr(plan, boundary))})
    if boundary == "progress":
        return replace(plan, **{boundary: kill.around(getattr(plan, boundary))})
    if boundary == "checkpoints.prune":
        patch.setattr(checkpoints, "prune", kill.around(checkpoints.prune))
        return plan
    owner, name = boundary.split(".")
    target = {"engine": plan.engine, "run": plan.run}[owner]
    patch.setattr(target, name, kill.around(getattr(target, name)))
    return plan


BOUNDARIES = [
    "collect",
    "score",
    "engine.accumulate",
    "engine.step",
    "engine.save",
    "engine.publish",
    "run.write_trajectories",
    "run.append_step",
    "checkpoints.prune",
]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("when", [0, 2])
@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_x52_killed_anywhere_it_resumes_to_the_same_end(
    tmp_path: Path,
    uninterrupted: End,
    boundary: str,
    when: int,
    after: bool,
) -> None:
    directory = tmp_path / "run"
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        asyncio.run(train(sabotage(plan_for(directory), boundary, KillAt(when, after), patch)))
    asyncio.run(train(plan_for(directory, resume=True)))
    assert ends_with(directory) == uninterrupted


@pytest.mark.parametrize("when", range(len(STAGES), 2 * len(STAGES)))
def test_killed_at_the_start_of_any_stage_of_the_second_step(
    tmp_path: Path, uninterrupted: End, when: int
) -> None:
    directory = tmp_path / "run"
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        asyncio.run(train(sabotage(plan_for(directory), "progress", KillAt(when, False), patch)))
    asyncio.run(train(plan_for(directory, resume=True)))
    assert ends_with(directory) == uninterrupted


def test_resuming_a_finished_run_does_nothing_more(tmp_path: Path, uninterrupted: End) -> None:
    directory = tmp_path / "run"
    asyncio.run(train(plan_for(directory)))
    result = asyncio.run(train(plan_for(directory, resume=True)))
    assert result.first_step == STEPS
    assert ends_with(directory) == uninterrupted


def test_lines_beyond_the_checkpoint_are_done_again(tmp_path: Path, uninterrupted: End) -> None:
    """Someone points latest back by one step, as one would after a bad update."""
    directory = tmp_path / "run"
    asyncio.run(train(plan_for(directory)))
    (directory / "checkpoints" / "latest").write_text(f"{STEPS - 2:04d}\n")
    assert asyncio.run(train(plan_for(directory, resume=True))).first_step == STEPS - 1
    assert ends_with(directory) == uninterrupted


def test_it_is_asked_before_each_step_and_may_end_the_training(tmp_path: Path) -> None:
    """Asked when that many steps are done and the policy after them is served; resumed, it is asked again."""
    asked: list[tuple[int, int]] = []

    async def goes_on(step: int) -> bool:
        asked.append((step, plan.engine.info.policy_version))
        return step < 2

    plan = plan_for(tmp_path / "run")
    result = asyncio.run(train(replace(plan, goes_on=goes_on)))
    assert asked == [(0, 0), (1, 1), (2, 2)]
    assert [line["step"] for line in result.lines] == [0, 1]
    plan = plan_for(tmp_path / "run", resume=True)
    assert asyncio.run(train(replace(plan, goes_on=goes_on))).first_step == 2
    assert asked[3:] == [(2, 2)]


def test_a_used_directory_is_refused_without_resume(tmp_path: Path) -> None:
    plan = plan_for(tmp_path / "run", steps=1)
    asyncio.run(train(plan))
    with pytest.raises(InputError, match="1 steps are done here"):
        asyncio.run(train(plan))


def tied_at(steps: set[int], world: World) -> Callable[[Sequence[Group], int], Any]:
    async def score(groups: Sequence[Group], step: int) -> list[Group]:
        if step in steps:
            return [scored(group, lambda _: 0.5) for group in groups]
        return await world.score(groups, step)

    return score


def test_a_step_without_rows_updates_and_publishes_nothing(tmp_path: Path) -> None:
    plan = plan_for(tmp_path / "run")
    plan = replace(plan, score=tied_at({0, 2}, World(plan.engine)))  # type: ignore[arg-type]
    lines = asyncio.run(train(plan)).lines
    assert [line["updated"] for line in lines] == [False, True, False, True]
    assert lines[0]["skipped"] == "no trainable rows: 3 tied"
    assert lines[0]["published"] is None
    assert (lines[0]["tied_share"], lines[1]["tied_share"]) == (1.0, 0.0)
    assert set(lines[0]["engine"].values()) == {None}
    assert lines[0]["trained_tokens"] == 0 < lines[0]["sampled_tokens"]
    assert [line["published"]["version"] for line in lines if line["published"]] == [1, 2]
    assert plan.engine.info.policy_version == 2


@pytest.mark.parametrize("killed_at", range(STEPS))
def test_idle_steps_keep_their_lines_on_resume(tmp_path: Path, killed_at: int) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    plan = plan_for(whole)
    asyncio.run(train(replace(plan, score=tied_at({0, 2}, World(plan.engine)))))  # type: ignore[arg-type]

    plan = plan_for(broken)
    kill = KillAt(killed_at, after=False)
    score = kill.around_async(tied_at({0, 2}, World(plan.engine)))  # type: ignore[arg-type]
    with pytest.raises(Killed):
        asyncio.run(train(replace(plan, score=score)))
    plan = plan_for(broken, resume=True)
    score = tied_at({0, 2}, World(plan.engine))  # type: ignore[arg-type]
    result = asyncio.run(train(replace(plan, score=score)))
    assert result.first_step == killed_at
    assert ends_with(broken) == ends_with(whole)


def dead_from(step_of_death: int, world: World) -> Callable[[Sequence[Group], int], Any]:
    async def score(groups: Sequence[Group], step: int) -> list[Group]:
        if step >= step_of_death:
            return [scored(group, lambda _: None, "transport: connection refused") for group in groups]
        return await world.score(groups, step)

    return score


def test_a_dead_judge_stops_the_run_and_resume_continues(tmp_path: Path, uninterrupted: End) -> None:
    directory = tmp_path / "run"
    plan = plan_for(directory, max_judge_failures=3)
    dead = replace(plan, score=dead_from(2, World(plan.engine)))  # type: ignore[arg-type]
    with pytest.raises(JudgeStopped, match=r"step 2: no verdict for 3 groups in a row \(transport: conn"):
        asyncio.run(train(dead))
    assert [line["step"] for line in plan.run.steps()] == [0, 1]
    assert len(list(plan.run.read_trajectories(part(2)))) == GROUPS * ATTEMPTS
    assert plan.run.events()[-1]["kind"] == "judge_stopped"
    asyncio.run(train(plan_for(directory, resume=True)))
    assert ends_with(directory) == uninterrupted


def test_judge_failures_are_counted_across_steps(tmp_path: Path) -> None:
    plan = plan_for(tmp_path / "run", max_judge_failures=GROUPS + 1)
    dead = replace(plan, score=dead_from(1, World(plan.engine)))  # type: ignore[arg-type]
    with pytest.raises(JudgeStopped, match="step 2: no verdict for 4 groups"):
        asyncio.run(train(dead))
    assert plan.run.steps()[-1]["groups"]["unscored"] == GROUPS


def test_a_loss_that_is_not_finite_stops_before_the_update(tmp_path: Path) -> None:
    plan = plan_for(tmp_path / "run")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan.engine, "accumulate", lambda *_: {"loss": math.nan})
        with pytest.raises(EngineError, match=r"step 0: loss not finite.*inspect/update-0000\.jsonl"):
            asyncio.run(train(plan))
    assert isinstance(plan.engine, FakeEngine)
    assert not plan.engine.delta.any()
    assert plan.run.steps() == []


@pytest.mark.parametrize(("ratio", "said"), [(0.896, 1), (1.2, 1), (0.999, 0)])
def test_t17_a_sampler_that_is_not_the_policy_is_reported(tmp_path: Path, ratio: float, said: int) -> None:
    """0.896 is what top_p = 0.8 gave elsewhere: the mass that was kept."""
    plan = plan_for(tmp_path / "run", steps=1)
    accumulate = plan.engine.accumulate
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan.engine, "accumulate", lambda *a: {**accumulate(*a), "ratio": ratio})
        asyncio.run(train(plan))
    events = [event for event in plan.run.events() if event["kind"] == "sampler_disagrees"]
    assert [(event["step"], event["ratio"]) for event in events] == [(0, ratio)] * said


def test_a_sampler_that_is_the_policy_is_not_reported(tmp_path: Path) -> None:
    plan = replace(plan_for(tmp_path / "run"), updates=3)
    asyncio.run(train(plan))
    assert [event for event in plan.run.events() if event["kind"] == "sampler_disagrees"] == []


def test_cancelled_it_stops_between_stages_with_the_checkpoint_intact(
    tmp_path: Path, uninterrupted: End
) -> None:
    """The cancellation arrives inside the update of step 1, which still ends whole."""
    directory = tmp_path / "run"
    seen: list[Progress] = []

    async def run() -> None:
        plan = plan_for(directory)
        loop_task = asyncio.ensure_future(train(replace(plan, progress=lambda p: cancel_in_update(p))))

        def cancel_in_update(progress: Progress) -> None:
            seen.append(progress)
            if (progress.step, progress.stage) == (1, "update"):
                loop_task.cancel()

        await loop_task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(run())
    assert (seen[-1].step, seen[-1].stage) == (1, "update")
    latest = checkpoints.latest(Run.view(directory))
    assert latest is not None
    assert latest.step == 0
    asyncio.run(train(plan_for(directory, resume=True)))
    assert ends_with(directory) == uninterrupted


def test_progress_names_every_stage_in_order_and_estimates_the_rest(tmp_path: Path) -> None:
    seen: list[Progress] = []
    ticks = iter(range(10_000))
    plan = plan_for(tmp_path / "run", steps=2, progress=seen.append, now=lambda: float(next(ticks)))
    asyncio.run(train(plan))
    assert [p.stage for p in seen] == [*STAGES, *STAGES]
    assert all(p.seconds_left is None for p in seen[:6])
    assert all(p.seconds_left is not None and p.seconds_left >= 0 for p in seen[6:])


def test_published_is_what_the_engine_said(tmp_path: Path) -> None:
    plan = plan_for(tmp_path / "run", steps=1)
    said = Published(
        version=9, name="x@9", probe_gap=0.25, probe_bound=0.5, probe_separation=1.5, seconds=3.0
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan.engine, "publish", lambda: said)
        line = asyncio.run(train(plan)).lines[0]
    assert line["published"] == {
        "version": 9,
        "name": "x@9",
        "probe_gap": 0.25,
        "probe_bound": 0.5,
        "probe_separation": 1.5,
        "probe_base_separation": None,
    }


@pytest.mark.parametrize(
    ("rows", "updates", "expected"),
    [(7, 1, [(0, 7)]), (7, 3, [(0, 2), (2, 4), (4, 7)]), (2, 5, [(0, 1), (1, 2)])],
)
def test_rows_are_shared_out_to_updates(rows: int, updates: int, expected: list[tuple[int, int]]) -> None:
    assert [(part.start, part.stop) for part in _parts(rows, updates)] == expected


def test_several_updates_train_every_row_once(tmp_path: Path) -> None:
    plan = replace(plan_for(tmp_path / "run", steps=1), updates=3)
    seen: list[int] = []
    steps: list[int] = []
    accumulate, step = plan.engine.accumulate, plan.engine.step
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            plan.engine, "accumulate", lambda rows, adv: seen.append(len(rows)) or accumulate(rows, adv)
        )
        patch.setattr(plan.engine, "step", lambda: steps.append(1) or step())
        line = asyncio.run(train(plan)).lines[0]
    assert sum(seen) == line["rows"]
    assert len(steps) == len(seen) == min(3, line["rows"])
    assert line["engine"]["tokens"] == line["trained_tokens"]

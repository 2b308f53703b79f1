"""Attempts of an older policy: how old, which are dropped, and what a run ahead of itself comes to."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_batch import FORKED, TWO_TURNS, attempt, group
from test_loop import STEPS, KillAt, Killed, World, plan_for, sabotage

from strop.errors import JudgeStopped
from strop.store import checkpoints
from strop.store.run import Run
from strop.training.ahead import Ahead, aside
from strop.training.batch import AdvantageRule, training_batch
from strop.training.loop import part, train
from strop.training.staleness import Bound
from strop.trajectory.model import Group, Trajectory


def by(member: Trajectory, *versions: int) -> Trajectory:
    """The attempt with its turns sampled by these versions."""
    turns = [replace(t, policy_version=v) for t, v in zip(member.turns, versions, strict=True)]
    return replace(member, turns=tuple(turns))


def test_a_row_is_as_old_as_its_oldest_turn() -> None:
    """Trained is version 5: one row of two turns by 5 and 3, two rows of a turn each by 4 and 2, one by 5."""
    members = (by(attempt("a0", 1.0, TWO_TURNS), 5, 3), by(attempt("a1", 0.0, FORKED), 4, 2))
    batch = training_batch(
        [group("a", *members, by(attempt("a2", 0.5), 5))], AdvantageRule(), Bound(version=5, most=3)
    )
    assert list(batch.staleness) == [2, 1, 3, 0]
    assert (len(batch.rows), batch.stale_rows) == (4, 0)


def test_rows_older_than_the_bound_are_dropped_and_counted() -> None:
    """Of the forked attempt one row is left; nothing is left of a0; the advantages are those of all three."""
    members = [by(attempt("a0", 1.0, TWO_TURNS), 5, 3), by(attempt("a1", 0.0, FORKED), 4, 2)]
    members.append(by(attempt("a2", 0.5), 5))
    old = group("b", by(attempt("b0", 1.0), 3), by(attempt("b1", 0.0), 1))
    groups = [group("a", *members), old]
    batch = training_batch(groups, AdvantageRule(), Bound(version=5, most=1))
    assert [row.trajectory_id for row in batch.rows] == ["a1", "a2"]
    assert list(batch.advantages) == pytest.approx([-1.0, 0.0])
    assert (list(batch.staleness), batch.stale_rows) == ([1, 0], 4)
    assert (batch.trajectories["trained"], batch.trajectories["stale"]) == (2, 3)
    assert (batch.groups["trained"], batch.groups["stale"]) == (1, 1)
    assert sum(batch.trajectories.values()) == 5
    assert batch.trained_tokens == 4


def test_a_version_of_the_future_counts_as_the_present_one() -> None:
    members = [by(attempt("a0", 1.0), 9), by(attempt("a1", 0.0), 5)]
    batch = training_batch([group("a", *members)], AdvantageRule(), Bound(version=5))
    assert list(batch.staleness) == [0, 0]


@pytest.mark.parametrize(("most", "expected"), [(0, [0, 0, 0, 0]), (1, [0, 1, 1, 1]), (2, [0, 1, 2, 2])])
def test_x54_a_run_is_at_most_so_many_versions_ahead(tmp_path: Path, most: int, expected: list[int]) -> None:
    """By hand: step 0 is sampled by version 0, the `most` steps after it too, and so on from there."""
    lines = asyncio.run(train(plan_for(tmp_path / "run", max_staleness=most))).lines
    assert [line["staleness"]["most"] for line in lines] == expected
    assert [line["staleness"]["mean"] for line in lines] == expected
    assert all(line["staleness"]["dropped_rows"] == line["trajectories"]["stale"] == 0 for line in lines)
    run = Run.view(tmp_path / "run")
    versions = [{t.turns[0].policy_version for t in run.read_trajectories(part(s))} for s in range(STEPS)]
    assert versions == [{step - age} for step, age in enumerate(expected)]


def test_it_still_learns_from_older_attempts(tmp_path: Path) -> None:
    lines = asyncio.run(train(plan_for(tmp_path / "run", steps=60, max_staleness=2))).lines
    means = [line["judge_score"]["mean"] for line in lines]
    assert sum(means[:8]) / 8 < 0.6
    assert sum(means[-8:]) / 8 > 0.7


def test_older_attempts_are_no_sign_of_a_sampler_that_is_another_model(tmp_path: Path) -> None:
    """Every ratio is 1.2 here; only the first step's attempts are of the policy that is trained on them."""
    plan = plan_for(tmp_path / "run", max_staleness=1)
    accumulate = plan.engine.accumulate
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan.engine, "accumulate", lambda *a: {**accumulate(*a), "ratio": 1.2})
        asyncio.run(train(plan))
    assert [e["step"] for e in plan.run.events() if e["kind"] == "sampler_disagrees"] == [0]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    "boundary", ["collect", "score", "engine.step", "engine.save", "engine.publish", "run.append_step"]
)
def test_killed_while_ahead_every_step_is_still_done_once(tmp_path: Path, boundary: str, after: bool) -> None:
    """Not to the same numbers: what was sampled ahead died with the process."""
    directory = tmp_path / "run"
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        asyncio.run(train(sabotage(plan_for(directory, max_staleness=1), boundary, KillAt(2, after), patch)))
    asyncio.run(train(plan_for(directory, resume=True, max_staleness=1)))
    lines = Run.view(directory).steps()
    assert [line["step"] for line in lines] == list(range(STEPS))
    assert [line["published"]["version"] for line in lines] == list(range(1, STEPS + 1))
    assert all(line["staleness"]["most"] <= 1 for line in lines)
    assert all(line["trained_tokens"] > 0 for line in lines)
    latest = checkpoints.latest(Run.view(directory))
    assert latest is not None
    assert latest.step == STEPS - 1


def test_a_step_of_nothing_but_old_attempts_is_skipped(tmp_path: Path) -> None:
    """Whoever collects may hand over what is older than was asked for."""
    plan = plan_for(tmp_path / "run", steps=3)
    kept: list[Sequence[Group]] = []

    async def the_first_ones_again(step: int) -> Sequence[Group]:
        kept.append(await World(plan.engine).collect(step))  # type: ignore[arg-type]
        return kept[0] if step == 2 else kept[step]

    lines = asyncio.run(train(replace(plan, collect=the_first_ones_again))).lines
    assert [line["updated"] for line in lines] == [True, True, False]
    assert lines[2]["skipped"] == "no trainable rows: 3 stale"
    assert lines[2]["staleness"] == {"mean": None, "most": None, "dropped_rows": 12}


def test_a_judge_that_stops_ends_the_rollouts_ahead(tmp_path: Path) -> None:
    ended: list[int] = []
    plan = plan_for(tmp_path / "run", max_staleness=2)

    async def collect(step: int) -> list[Group]:
        if step == 0:
            return await World(plan.engine).collect(step)  # type: ignore[arg-type]
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(step)
        return []

    async def refuses(_groups: Sequence[Group], _step: int) -> list[Group]:
        await asyncio.sleep(0)
        raise JudgeStopped("no")

    with pytest.raises(JudgeStopped):
        asyncio.run(train(replace(plan, collect=collect, score=refuses)))
    assert sorted(ended) == [1, 2]
    assert len(list(plan.run.read_trajectories(part(0)))) == 12


def test_a_rollout_that_fails_ahead_is_told_when_its_turn_comes() -> None:
    async def collect(step: int) -> list[Group]:
        if step == 1:
            raise ValueError("its scenario is broken")
        return []

    async def run() -> None:
        ahead = Ahead(collect, 1, 3)
        await ahead.take(0)
        await asyncio.sleep(0)
        with pytest.raises(ValueError, match="broken"):
            await ahead.take(1)
        await ahead.abandon()

    asyncio.run(run())


def test_work_aside_is_never_left_in_its_middle() -> None:
    done: list[str] = []

    async def run() -> None:
        began = asyncio.Event()
        loop = asyncio.get_running_loop()

        def work() -> None:
            loop.call_soon_threadsafe(began.set)
            asyncio.run(asyncio.sleep(0.05))
            done.append("whole")

        task: asyncio.Task[Any] = asyncio.ensure_future(aside(work, threaded=True))
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert done == ["whole"]

    asyncio.run(run())


def test_the_event_loop_goes_on_while_work_is_aside() -> None:
    async def run() -> str:
        loop, told = asyncio.get_running_loop(), asyncio.Event()

        def work() -> str:
            return asyncio.run_coroutine_threadsafe(told.wait(), loop).result(10) and "heard"

        asyncio.get_running_loop().call_soon(told.set)
        return await aside(work, threaded=True)

    assert asyncio.run(run()) == "heard"

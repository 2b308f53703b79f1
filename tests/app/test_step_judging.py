"""Groups judged while others still roll out: what overlaps, what is kept, and that it changes no number."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from toy_project import LetterJudge, write_project

import virtual_time
from strop import app
from strop.app.judging import Bench
from strop.app.step_judging import StepJudging
from strop.app.waits import Waits
from strop.config import load
from strop.errors import JudgeStopped, StropError, Unreachable
from strop.judge.verdict import Verdict
from strop.store import checkpoints
from strop.store.run import Run
from strop.trajectory.model import Group, Trajectory


@dataclass
class Scripted:
    """A judge that does with each group what its `body` does; 0.5 for every attempt is what it says."""

    body: Callable[[Group], Any]
    begun: list[str] = field(default_factory=list)
    stopped: bool = False

    async def __call__(self, group: Group) -> Verdict:
        if self.stopped:
            raise JudgeStopped("judging was stopped")
        self.begun.append(group.group_id)
        await self.body(group)
        return Verdict(group_id=group.group_id, scores={t.trajectory_id: 0.5 for t in group.trajectories})

    def stop(self) -> None:
        self.stopped = True


def group(name: str) -> Group:
    members = [
        Trajectory(trajectory_id=f"{name}/{n}", scenario_id=name, group_id=name, messages=())
        for n in range(2)
    ]
    return Group(group_id=name, scenario_id=name, trajectories=tuple(members))


def judging(judge: Scripted) -> StepJudging:
    nowhere: Any = None
    judge_of_it: Any = judge
    return StepJudging(Bench(judge=judge_of_it, endpoint=nowhere, waits=Waits()), "train-0000")


def scores(groups: Sequence[Group]) -> list[list[float | None]]:
    return [[member.score for member in one.trajectories] for one in groups]


def test_each_group_is_judged_once_whenever_it_was_begun() -> None:
    async def run() -> None:
        judge = Scripted(lambda _: asyncio.sleep(0))
        work, groups = judging(judge), [group("a"), group("b"), group("c")]
        work.begin([groups[1]])
        await asyncio.sleep(0.01)
        assert judge.begun == ["b"]
        work.begin(groups)
        await work.ended()
        work.raise_error()
        assert judge.begun == ["b", "a", "c"]
        assert scores(work.applied(groups)) == [[0.5, 0.5]] * 3

    virtual_time.run(run())


def refuses_b(during: asyncio.Event) -> Callable[[Group], Any]:
    async def body(one: Group) -> None:
        if one.group_id == "b":
            raise Unreachable("the key was refused")
        if one.group_id == "a":
            during.set()
            await asyncio.sleep(0.05)

    return body


def test_what_was_in_flight_is_kept_when_the_judge_refuses_and_nothing_is_begun_after_it() -> None:
    async def run() -> None:
        in_flight = asyncio.Event()
        judge = Scripted(refuses_b(in_flight))
        work, groups = judging(judge), [group("a"), group("b"), group("c")]
        work.begin(groups[:1])
        await in_flight.wait()
        work.begin(groups[1:2])
        await asyncio.sleep(0.01)
        work.begin(groups)
        await work.ended()
        assert judge.begun == ["a", "b"]
        assert set(work.verdicts) == {"a"}
        assert scores(work.applied(groups)) == [[0.5, 0.5], [None, None], [None, None]]
        with pytest.raises(Unreachable, match="the key was refused"):
            work.raise_error()

    virtual_time.run(run())


def test_the_reason_is_told_rather_than_that_judging_was_stopped() -> None:
    """A group that hears first that judging was stopped does not hide why."""

    async def body(one: Group) -> None:
        await asyncio.sleep(0.01)
        if one.group_id == "a":
            raise JudgeStopped("judging was stopped")
        await asyncio.sleep(0.01)
        raise Unreachable("no such model")

    async def run() -> None:
        work = judging(Scripted(body))
        work.begin([group("a"), group("b")])
        await work.ended()
        with pytest.raises(StropError, match="no such model"):
            work.raise_error()

    virtual_time.run(run())


def test_calls_that_do_not_end_are_given_up() -> None:
    async def body(one: Group) -> None:
        if one.group_id == "b":
            raise Unreachable("the key was refused")
        await asyncio.sleep(3600)

    async def run() -> None:
        work = judging(Scripted(body))
        work.begin([group("a"), group("b")])
        await work.ended()
        assert work.verdicts == {}
        with pytest.raises(Unreachable):
            work.raise_error()

    virtual_time.run(run())


def test_an_error_of_the_program_is_not_taken_for_the_judge_s() -> None:
    async def body(_one: Group) -> None:
        raise ZeroDivisionError

    async def run() -> None:
        work = judging(Scripted(body))
        work.begin([group("a")])
        with pytest.raises(ZeroDivisionError):
            await work.ended()

    virtual_time.run(run())


WAITS = """
import asyncio
from pathlib import Path


async def run(client, scenario):
    messages = [{{"role": "user", "content": scenario.data["word"]}}]
    made = await client.chat.completions.create(model="policy", messages=messages, max_tokens=12)
    if scenario.scenario_id in {slow}:
        for _ in range(600):
            if Path({sign}).exists():
                break
            await asyncio.sleep(0.05)
        else:
            raise TimeoutError("no group was judged meanwhile")
    return [*messages, {{"role": "assistant", "content": made.choices[0].message.content or ""}}]
"""


def trained(run_toml: Path, *overrides: str, resume: bool = False) -> dict[str, Any]:
    return app.train(load(run_toml, overrides), resume=resume)


def end_of(path: Path) -> Any:
    run = Run.view(path)
    latest = checkpoints.latest(run)
    assert latest is not None
    lines = [{key: value for key, value in line.items() if key != "seconds"} for line in run.steps()]
    return lines, (latest.path / "adapter/adapter_model.safetensors").read_bytes()


def first_step_s_second_scenario(run_toml: Path) -> str:
    from strop.app import building
    from strop.app.sources import source

    config = load(run_toml)
    return source(config, building.limits(config)).training(0)[1].scenario_id


def test_the_judge_works_while_another_group_still_rolls_out(
    tmp_path: Path, tiny_model: Path, judge: LetterJudge
) -> None:
    """The attempts of one group do not end before the judge was asked about the other."""
    run_toml = write_project(tmp_path, tiny_model, judge.url)
    slow, sign = first_step_s_second_scenario(run_toml), tmp_path / "asked"
    (tmp_path / "agent.py").write_text(WAITS.format(slow=(slow,), sign=repr(str(sign))))
    judge.on_asked = sign.touch
    trained(run_toml, "training.steps=1", "evaluation.heldout=0", "evaluation.judged_groups=0")
    line = Run.view(tmp_path / "runs/run").steps()[0]
    assert line["trajectories"]["failed"] == 0
    assert line["groups"]["unscored"] == 0


def test_it_changes_no_number(tmp_path: Path, tiny_model: Path, judge: LetterJudge) -> None:
    for overlap in ("true", "false"):
        run_toml = write_project(tmp_path / overlap, tiny_model, judge.url)
        trained(run_toml, f"training.overlap={overlap}")
    assert end_of(tmp_path / "true/runs/run") == end_of(tmp_path / "false/runs/run")


def test_what_was_judged_before_the_judge_refused_is_kept_and_not_paid_twice(
    tmp_path: Path, tiny_model: Path, judge: LetterJudge
) -> None:
    """Two held-out groups take 4 calls and the first group of step 0 two more; then the key is refused."""
    run_toml = write_project(tmp_path / "broken", tiny_model, judge.url)
    judge.good, judge.broken = 6, 401
    with pytest.raises(Unreachable, match="401"):
        trained(run_toml, "judge.concurrency=1")
    run = Run.view(tmp_path / "broken/runs/run")
    assert run.steps() == []
    assert len(run.read_verdicts("train-0000")) == 1
    kept = list(run.read_trajectories("train-0000"))
    assert [member.score is not None for member in kept].count(True) == len(kept) / 2 == 3
    asked, judge.good = judge.asked, 1 << 30
    trained(run_toml, resume=True)
    assert judge.asked - asked == 2 + 4
    trained(write_project(tmp_path / "whole", tiny_model, judge.url))
    assert end_of(run.path) == end_of(tmp_path / "whole/runs/run")


def test_an_embedded_judge_that_overlaps_repeats(tmp_path: Path, judge: LetterJudge) -> None:
    """A random model scores nothing, but what it says is the same in every run, whatever else is decoded."""
    from local_model import write_model

    # A token a letter: the prompts are long.
    model = write_model(tmp_path / "model", max_position_embeddings=8192)
    trained(write_project(tmp_path / "judge", model, judge.url), "training.steps=1")
    adapter = tmp_path / "judge/runs/run/checkpoints/0000/adapter"
    said = []
    for name in ("one", "two"):
        run_toml = write_project(tmp_path / name, model, "unused")
        text = run_toml.read_text().split("[judge]")[0]
        text += f'[judge]\nadapter = "{adapter}"\nmax_tokens = 8\nmax_failures_in_a_row = 0\n'
        run_toml.write_text(text + "[training]\nsteps = 2\noverlap = true\n")
        trained(run_toml, "model.max_length=8192")
        run = Run.view(tmp_path / name / "runs/run")
        verdicts = [verdict for step in range(2) for verdict in run.read_verdicts(f"train-{step:04d}")]
        said.append([[reply["text"] for reply in verdict["replies"]] for verdict in verdicts])
    assert said[0] == said[1]
    assert len({text for verdict in said[0] for text in verdict}) > 1


@pytest.mark.parametrize("most", [1, 2])
def test_a_whole_run_ahead_of_itself_stays_within_the_bound(
    tmp_path: Path, tiny_model: Path, judge: LetterJudge, most: int
) -> None:
    """With a real engine: rollouts decode while updates are made, and turns may be of two versions."""
    run_toml = write_project(tmp_path, tiny_model, judge.url)
    trained(run_toml, "training.steps=4", f"training.max_staleness={most}")
    lines = Run.view(tmp_path / "runs/run").steps()
    assert [line["step"] for line in lines] == [0, 1, 2, 3]
    ages = [line["staleness"]["most"] for line in lines if line["updated"]]
    assert ages[0] == 0
    assert 1 <= max(ages) <= most
    assert all(line["trajectories"]["stale"] == line["trajectories"]["failed"] == 0 for line in lines)
    served = [line["published"]["version"] for line in lines if line["updated"]]
    assert served == list(range(1, len(served) + 1))

"""Judge and grade files of trajectories, and write reports: no training."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from strop.app.judging import Bench, bench, endpoint_judge, nobody_answered
from strop.app.sources import ORDER_DESK
from strop.config import RunConfig, load_judge
from strop.engines.opening import EmbeddedEngine, local, prepare
from strop.errors import InputError, Unreachable
from strop.grader.codec import to_json
from strop.grader.grade import Graded
from strop.grader.grade import grade as grade_steps
from strop.inference.chat import Chat
from strop.judge.rubric import default_rubric, read_rubric
from strop.judge.verdict import Verdict
from strop.report.page import render
from strop.store.run import Run
from strop.training.demonstrations import as_turns
from strop.trajectory import codec
from strop.trajectory.lines import write_objects
from strop.trajectory.model import Group, Trajectory


def judge_file(file: Path, judge_toml: Path | None, out: Path) -> dict[str, Any]:
    """Score every group of a trajectory file and write one JSON line a group to `out`.

    Without `judge_toml`, the embedded judge. Returns counts, cost and where the verdicts are. Raises
    Unreachable, with `out` written, where no group has a verdict because the judge does not answer.
    """
    groups = _groups(codec.read(file))
    verdicts = asyncio.run(_judge_all(groups, judge_toml))
    write_objects(out, (verdict.to_json() for verdict in verdicts))
    failures = [verdict.failure for verdict in verdicts if verdict.failure]
    if nobody_answered(verdicts):
        raise Unreachable(
            f"no verdict for any of {len(groups)} groups: {verdicts[-1].detail}; see to the judge"
        )
    return {
        "groups": len(groups),
        "scored": len(verdicts) - len(failures),
        "failures": {str(name): failures.count(name) for name in sorted(set(failures))},
        "tokens_in": sum(v.cost.tokens_in for v in verdicts),
        "tokens_out": sum(v.cost.tokens_out for v in verdicts),
        "out": str(out),
    }


async def _judge_all(groups: Sequence[Group], judge_toml: Path | None) -> list[Verdict]:
    config = load_judge(judge_toml) if judge_toml else None
    if config is not None and not config.embedded:
        rubric = read_rubric(config.rubric) if config.rubric else default_rubric()
        judge = endpoint_judge(config, rubric, seed=0)
        return await _closing(Bench(judge=judge, engine=None, seed=0), groups)
    settings: dict[str, Any] = {"rollout": {"scenarios": ORDER_DESK, "agent": ORDER_DESK}}
    run = RunConfig.model_validate(settings)
    if config is not None:
        run = run.model_copy(update={"judge": config})
    with _engine("smollm2", None) as engine:
        return await _closing(bench(run, engine), groups)


async def _closing(judges: Bench, groups: Sequence[Group]) -> list[Verdict]:
    try:
        return (await judges.judged(groups, "file"))[1]
    finally:
        await judges.judge.close()


def grade(*, file: Path, policy: Path, reference: Path | None, model: str, out: Path) -> dict[str, Any]:
    """Grade every step of a trajectory file, policy against reference, one JSON line a trajectory.

    Recorded token ids are used as they are; plain chat logs are rendered with the model's template.
    Both are adapters over one base, so they share its tokenizer.
    """
    with _engine(model, policy, reference) as engine:
        chat = Chat(engine.tokenizer)
        prepared = (as_turns(trajectory, chat) for trajectory in codec.read(file))
        graded, ungraded = 0, 0

        def lines() -> Iterator[dict[str, Any]]:
            nonlocal graded, ungraded
            for one in grade_steps(prepared, engine, decode=engine.decode):
                graded, ungraded = _counted(one, graded, ungraded)
                yield to_json(one)

        write_objects(out, lines())
    return {"graded": graded, "ungraded": ungraded, "out": str(out)}


def _counted(one: Graded, graded: int, ungraded: int) -> tuple[int, int]:
    return (graded, ungraded + 1) if one.ungraded else (graded + 1, ungraded)


def report(folder: Path) -> Path:
    """Write a run's report.html and return its path."""
    return render(Run.view(folder))


@contextmanager
def _engine(model: str, policy: Path | None, reference: Path | None = None) -> Iterator[EmbeddedEngine]:
    prepare()
    from strop.engines.local.engine import LocalConfig

    engine = local(
        LocalConfig(model=model, adapter=policy, reference=reference or ("base" if policy else None))
    )
    try:
        yield engine
    finally:
        engine.close()


def _groups(trajectories: Iterator[Trajectory]) -> list[Group]:
    by_id: dict[str, list[Trajectory]] = {}
    for trajectory in trajectories:
        by_id.setdefault(trajectory.group_id, []).append(trajectory)
    if not by_id:
        raise InputError("nothing to judge: the file holds no trajectory")
    return [
        Group(group_id=group_id, scenario_id=members[0].scenario_id, trajectories=members)
        for group_id, members in by_id.items()
    ]

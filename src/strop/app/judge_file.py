"""Judge a file of trajectories, or show what a judge would be asked."""

import asyncio
import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from strop.app.building import plain_engine
from strop.app.judging import (
    Bench,
    cache_of,
    embedded_bench,
    endpoint_bench,
    judge_settings,
    nobody_answered,
    rubric_of,
    view_of,
)
from strop.app.sitting import OnStanding, Sitting, unwatched
from strop.config import JudgeConfig, judge_from_environment, load_judge
from strop.errors import InputError, Interrupted, StropError, Unreachable
from strop.judge import Answer, Judge, Prompt, Request, Verdict, apply
from strop.judge.forecast import forecast
from strop.seeds import generator
from strop.stats.intervals import Estimate, cluster_mean
from strop.trajectory import codec
from strop.trajectory.atomic import check_place
from strop.trajectory.grouping import grouped
from strop.trajectory.lines import write_objects
from strop.trajectory.model import Group

SEED = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeJob:
    """A trajectory file, who judges it by which rubric, and where the verdicts go.

    `judge` None: the one that the environment names, else the embedded one. `rubric` None: the one of
    the judge file, else the built-in one.
    """

    file: Path
    out: Path
    judge: Path | None = None
    rubric: Path | None = None
    progress: OnStanding = unwatched


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What came of a job: the result object, and why it ended early, None where it did not."""

    result: Mapping[str, Any]
    ended: StropError | None = None


def judge_file(job: JudgeJob) -> Judged:
    """Score every group of a trajectory file and write a JSON line a judged group, in the file's order.

    A judge that fails too often in a row, a ceiling that is met, or Ctrl-C ends it early: no new call is
    begun, those in flight end, and the groups that have a verdict are written. Raises InputError for a
    file that cannot be used, and Unreachable, with nothing written, where the judge refuses at once.
    """
    groups = read_groups(job.file)
    _check_out(job)
    config = judge_config(job)
    with _bench(config) as bench:
        sitting = Sitting(groups=groups, bench=bench, config=config)
        asyncio.run(sitting.hold(job.progress))
    if not sitting.verdicts:
        raise sitting.ended or Interrupted(f"interrupted before any verdict; {job.out} is unchanged")
    verdicts = [verdict for _, verdict in sorted(sitting.verdicts.items())]
    write_objects(job.out, (verdict.to_json() for verdict in verdicts))
    return Judged(result=_result(job, sitting, verdicts), ended=_ended(job, sitting, verdicts))


def show_prompts(job: JudgeJob, group_id: str | None = None) -> dict[str, Any]:
    """The first round's prompts for a group, the first one if none is named, exactly as they would be sent.

    No call, no key, no engine. Raises InputError for a group that the file does not hold.
    """
    group = _chosen(read_groups(job.file), group_id, job.file)
    config = judge_config(job)
    settings = judge_settings(config, seed=SEED)
    judge = Judge(_nobody, settings, rubric_of(config, at_desk=config.embedded), view_of(config))
    prompts = [_shown(prompt, config) for prompt in judge.prompts(group)]
    # Where nothing would be asked, judging asks nothing and says why.
    no_call = None if prompts else asyncio.run(judge(group)).detail
    return {"group": group.group_id, "mode": config.mode, "prompts": prompts, "no_call": no_call}


def judge_config(job: JudgeJob) -> JudgeConfig:
    """The judge file's settings, else the environment's, else the embedded judge's; the job's rubric."""
    named = load_judge(job.judge) if job.judge else judge_from_environment(os.environ)
    config = named or JudgeConfig(orders=1)
    return config if job.rubric is None else config.model_copy(update={"rubric": job.rubric})


def read_groups(file: Path) -> list[Group]:
    """The groups of a trajectory file, in the order of their first attempts. Raises InputError."""
    groups = grouped(codec.read(file))
    if not groups:
        raise InputError(f"{file}: nothing to judge: the file holds no trajectory")
    for group in groups:
        ids = Counter(trajectory.trajectory_id for trajectory in group.trajectories)
        twice = next((name for name, count in ids.items() if count > 1), None)
        if twice is not None:
            raise InputError(
                f"{file}: group {group.group_id!r} holds trajectory_id {twice!r} twice; make them differ"
            )
    return groups


def _check_out(job: JudgeJob) -> None:
    """Before anything is paid for."""
    if job.out.is_dir() or (job.out.exists() and job.out.samefile(job.file)):
        what = "a folder" if job.out.is_dir() else "the file that is judged"
        raise InputError(f"--out {job.out}: is {what}; give another file")
    check_place(job.out)


@contextmanager
def _bench(config: JudgeConfig) -> Iterator[Bench]:
    rubric = rubric_of(config, at_desk=config.embedded)
    settings = judge_settings(config, seed=SEED)
    if not config.embedded:
        yield endpoint_bench(config, settings, rubric)
        return
    with plain_engine("smollm2") as engine:
        yield embedded_bench(config, engine, settings, rubric)


def _result(job: JudgeJob, sitting: Sitting, verdicts: Sequence[Verdict]) -> dict[str, Any]:
    ledger = sitting.bench.judge.ledger
    cost = ledger.cost
    failures = Counter(str(verdict.failure) for verdict in verdicts if verdict.failure)
    return {
        "groups": len(sitting.groups),
        "judged": len(verdicts),
        "scored": len(verdicts) - failures.total(),
        "failures": dict(sorted(failures.items())),
        "unscored": sum(_unscored(sitting.groups[place], v) for place, v in sitting.verdicts.items()),
        "calls": cost.calls,
        "cached": sum(not reply.cost.calls for verdict in verdicts for reply in verdict.replies),
        "retried": dict(sorted(ledger.retried.items())),
        "tokens_in": cost.tokens_in,
        "tokens_cached": cost.tokens_cached,
        "tokens_out": cost.tokens_out,
        "unmetered": cost.unmetered,
        "money": cost.money,
        "seconds": round(sitting.seconds, 3),
        "reliability": _reliability(verdicts).to_json(),
        "forecast": forecast(ledger, sitting.left).to_json() if sitting.left else None,
        "out": str(job.out),
    }


def _unscored(group: Group, verdict: Verdict) -> int:
    return sum(trajectory.score is None for trajectory in apply(group, verdict).trajectories)


def _reliability(verdicts: Sequence[Verdict]) -> Estimate:
    known = {v.group_id: v.reliability for v in verdicts if v.reliability is not None}
    return cluster_mean(list(known.values()), list(known), generator(SEED, "reliability"))


def _ended(job: JudgeJob, sitting: Sitting, verdicts: Sequence[Verdict]) -> StropError | None:
    """Why it ended early, with what was kept and how to go on."""
    kept = f"{len(verdicts)} of {len(sitting.groups)} groups are in {job.out}"
    cache = cache_of(sitting.config)
    again = "is in the cache and not paid again" if cache else "is asked again, for there is no cache"
    how = f"{kept}; run the same command to go on: what was answered {again}"
    if sitting.ended is not None:
        return type(sitting.ended)(f"{sitting.ended}; {how}")
    if sitting.interrupts.count and sitting.left:
        return Interrupted(f"interrupted; {how}")
    if nobody_answered(verdicts):
        failed = [verdict for verdict in verdicts if verdict.failure]
        return Unreachable(
            f"no verdict for any of {len(failed)} groups: {failed[-1].detail}; see to the judge"
        )
    return None


def _chosen(groups: Sequence[Group], group_id: str | None, file: Path) -> Group:
    found = next((group for group in groups if group_id in (None, group.group_id)), None)
    if found is None:
        first = ", ".join(group.group_id for group in groups[:3])
        raise InputError(f"--group {group_id}: {file} holds no such group; its first are {first}")
    return found


def _shown(prompt: Prompt, config: JudgeConfig) -> dict[str, Any]:
    size = sum(len(str(message["content"]).encode()) for message in prompt.messages)
    return {
        "shown": dict(prompt.shown),
        "nonce": prompt.nonce,
        "tokens": math.ceil(size / config.bytes_per_token),
        "messages": [dict(message) for message in prompt.messages],
    }


async def _nobody(_: Request) -> Answer:
    raise AssertionError("a prompt that is only shown was asked")

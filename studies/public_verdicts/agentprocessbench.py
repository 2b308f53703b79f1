"""AgentProcessBench (arXiv 2603.14465): five runs a task, labelled by people and by seven judges.

Each judge labelled every run alone: a final label and one for each step, 1 right, -1 wrong, 0 neither.
Pairs of runs of one task whose human final labels differ are ordered by a judge's final label, or by the
mean of its step labels.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from strop.audit.judge import compare
from strop.grader.comparison import Comparison
from strop.seeds import generator
from strop.stats.agreement import RatedGroup, agreement_difference, pairwise_agreement
from strop.stats.intervals import RESAMPLES, Estimate, cluster_mean
from strop.trajectory.model import Group, Trajectory
from studies.public_verdicts.sources import read_lines

JUDGES = (
    "Gemini-3-Flash-Preview",
    "GPT-5.2",
    "DeepSeek-V3.2",
    "Qwen3-8B-Thinking",
    "Llama-3.3-70B-Instruct",
    "Qwen3-4B-Instruct-2507",
    "Llama-3.2-3B-Instruct",
)
ALL_SETS = ("bfcl", "gaia_dev", "hotpotqa", "tau2")
WITH_MESSAGES = "hotpotqa"
PASS, FAIL = 1, -1
FAILED_CALL = "llm_annotate_failed"

Scores = Mapping[str, float | None]
"""A number by run, None where the judge gave none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run with its human labels; `task` is the group it is compared in."""

    name: str
    task: str
    final: int
    steps: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Labels:
    """What a judge says of one run. `failed`: the call failed, and its stored labels mean nothing."""

    final: int
    steps: tuple[int, ...]
    failed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One judge's figures: pairwise agreement with the human final label by the judge's final label and
    by its mean step label, and the share of failed runs that it passes, all resampled by task."""

    final: Estimate
    steps: Estimate
    passes_failed: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A judge under both readings of a failed call. `scored`: it gives no score and is left out. `stored`:
    its labels as the files have them, a final label of 0. `over_longer`: `scored.final` less the
    agreement of "more steps wins"."""

    judge: str
    failed_calls: int
    scored: Reading
    stored: Reading
    over_longer: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """All rows, with the nulls "fewer steps wins" and "more steps wins" and, as the most that step labels
    give, the mean of the human ones."""

    sets: tuple[str, ...]
    tasks: int
    runs: int
    rows: tuple[Row, ...]
    fewer: Estimate
    more: Estimate
    human_steps: Estimate


def figures(folder: Path, resamples: int = RESAMPLES) -> Figures:
    """The figures over all sets that are there."""
    sets = tuple(name for name in ALL_SETS if (folder / "answers" / f"{name}_final.jsonl").exists())
    runs = [run for name in sets for run in read_runs(folder, name)]
    more = {run.name: float(len(run.steps)) for run in runs}
    fewer = {name: -length for name, length in more.items()}

    def null(kind: str, scores: Scores) -> Estimate:
        return pairwise_agreement(rated(runs, scores), generator(0, "agentprocessbench", kind), resamples)

    return Figures(
        sets=sets,
        tasks=len({run.task for run in runs}),
        runs=len(runs),
        rows=tuple(_row(folder, judge, sets, runs, resamples) for judge in JUDGES),
        fewer=null("fewer", fewer),
        more=null("more", more),
        human_steps=null("human", {run.name: _mean(run.steps) for run in runs}),
    )


def _row(folder: Path, judge: str, sets: tuple[str, ...], runs: list[Run], resamples: int) -> Row:
    stored = {name: labels for part in sets for name, labels in read_judge(folder, judge, part).items()}
    scored = {name: labels for name, labels in stored.items() if not labels.failed}
    rng = generator(0, "agentprocessbench", judge)
    ours = rated(runs, {name: float(labels.final) for name, labels in scored.items()})
    longer = rated(runs, {run.name: float(len(run.steps)) for run in runs})
    return Row(
        judge=judge,
        failed_calls=len(stored) - len(scored),
        scored=_reading(runs, scored, rng, resamples),
        stored=_reading(runs, stored, rng, resamples),
        over_longer=agreement_difference(ours, longer, rng, resamples),
    )


def _reading(
    runs: list[Run], labels: Mapping[str, Labels], rng: np.random.Generator, resamples: int
) -> Reading:
    final = {name: float(label.final) for name, label in labels.items()}
    steps = {name: _mean(label.steps) for name, label in labels.items()}
    failed = [run for run in runs if run.final == FAIL and run.name in labels]
    passed = [float(labels[run.name].final == PASS) for run in failed]
    return Reading(
        final=pairwise_agreement(rated(runs, final), rng, resamples),
        steps=pairwise_agreement(rated(runs, steps), rng, resamples),
        passes_failed=cluster_mean(passed, [run.task for run in failed], rng, resamples),
    )


def rated(runs: list[Run], scores: Scores) -> list[RatedGroup]:
    """The runs by task, with a score where there is one."""
    return [
        RatedGroup(scores=[scores.get(run.name) for run in task], truths=[float(run.final) for run in task])
        for task in _by_task(runs)
    ]


def _by_task(runs: list[Run]) -> list[list[Run]]:
    ordered = sorted(runs, key=lambda run: run.task)
    return [list(task) for _, task in groupby(ordered, key=lambda run: run.task)]


def read_runs(folder: Path, name: str) -> list[Run]:
    """The runs of one set with their human labels."""
    return [
        Run(
            name=line["record_id"],
            task=f"{name}:{line['query_index']}",
            final=line["final_label"],
            steps=tuple(line["step_labels"].values()),
        )
        for line in read_lines(folder / "answers" / f"{name}_final.jsonl")
    ]


def read_judge(folder: Path, judge: str, name: str) -> dict[str, Labels]:
    """One judge's labels of one set by run; steps that it left out are left out."""
    return {
        line["record_id"]: Labels(
            final=line["final_label"],
            steps=tuple(label for label in line["step_labels"].values() if label is not None),
            failed=(line["comment"] or "").startswith(FAILED_CALL),
        )
        for line in read_lines(folder / "judge_results" / judge / f"{name}.jsonl")
    }


def audits(folder: Path) -> dict[str, Comparison]:
    """Each judge's final labels on the set with messages, through the audit that a run of ours gets."""
    lines = read_lines(folder / f"{WITH_MESSAGES}.jsonl")
    runs = read_runs(folder, WITH_MESSAGES)
    messages = {(line["query_index"], line["sample_index"]): line["messages"] for line in lines}
    return {judge: _audit(runs, read_judge(folder, judge, WITH_MESSAGES), messages) for judge in JUDGES}


def _audit(
    runs: list[Run], labels: Mapping[str, Labels], messages: Mapping[tuple[int, int], Any]
) -> Comparison:
    groups = [
        Group(
            group_id=task[0].task,
            scenario_id=task[0].task,
            trajectories=[_trajectory(run, labels[run.name], messages[_place(run)]) for run in task],
        )
        for task in _by_task(runs)
    ]
    return compare(groups, [], generator(0, "agentprocessbench", "audit"))


def _trajectory(run: Run, labels: Labels, messages: list[Mapping[str, Any]]) -> Trajectory:
    return Trajectory(
        trajectory_id=run.name,
        scenario_id=run.task,
        group_id=run.task,
        messages=tuple(messages),
        truth=_share(run.final),
        score=None if labels.failed else _share(labels.final),
        unscored=FAILED_CALL if labels.failed else None,
    )


def _place(run: Run) -> tuple[int, int]:
    *_, task, sample = run.name.split(":")
    return int(task), int(sample)


def _share(label: int) -> float:
    return (label + 1) / 2


def _mean(labels: tuple[int, ...]) -> float | None:
    return float(np.mean(labels)) if labels else None

"""What the page shows, read from a run directory. Nothing is measured here; what is missing is None."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from strop.audit import records
from strop.audit.cost import counts, judge_cost, seconds_by_stage
from strop.grader.grade import Graded, StepGrade
from strop.judge.verdict import Verdict
from strop.report.chat import Utterance, conversation, shared_opening
from strop.store.run import Run
from strop.trajectory.grouping import grouped
from strop.trajectory.model import Trajectory

JUDGED = "judged-heldout"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt of the group shown: what was said after the opening, and what was said of it."""

    trajectory: Trajectory
    utterances: Sequence[Utterance]
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownGroup:
    """The group shown side by side; `opening` is what all its attempts start with."""

    group_id: str
    opening: Sequence[Utterance]
    attempts: Sequence[Attempt]
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownTrajectory:
    """The trajectory shown step by step, with its grades by step number."""

    trajectory: Trajectory
    graded: Graded
    utterances: Sequence[Utterance]

    @property
    def by_step(self) -> Mapping[int, StepGrade]:
        return {s.index: s for s in self.graded.steps}


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """All that the template needs. `summary` is empty while a run has not ended."""

    name: str
    summary: Mapping[str, Any]
    steps: Sequence[Mapping[str, Any]]
    evaluations: Sequence[Mapping[str, Any]]
    group: ShownGroup | None
    trajectory: ShownTrajectory | None
    seconds: Mapping[str, float]
    groups: Mapping[str, int]
    trajectories: Mapping[str, int]
    judge_cost: Mapping[str, Any] | None


def read(run: Run) -> Content:
    """Raises InputError where a file of the run is broken; a file that is not there is no error."""
    summary, steps = run.summary() or {}, run.steps()
    verdicts = {part: records.verdicts(run, part) for part in run.parts("verdicts")}
    every = [verdict for part in verdicts.values() for verdict in part]
    return Content(
        name=run.name,
        summary=summary,
        steps=steps,
        evaluations=run.evaluations(),
        group=_shown_group(run, verdicts.get(JUDGED, [])),
        trajectory=_shown_trajectory(run),
        seconds=summary.get("seconds") or seconds_by_stage(steps),
        groups=counts(steps, "groups"),
        trajectories=counts(steps, "trajectories"),
        judge_cost=judge_cost(every) if every else None,
    )


def _shown_group(run: Run, verdicts: Sequence[Verdict]) -> ShownGroup | None:
    """The first judged held-out group whose attempts differ in truth; without one, the first judged."""
    if not verdicts or JUDGED not in run.parts("trajectories"):
        return None
    members = {group.group_id: group.trajectories for group in grouped(run.read_trajectories(JUDGED))}
    judged = [v for v in verdicts if v.scores is not None and members.get(v.group_id)]
    mixed = [v for v in judged if len({t.truth for t in members[v.group_id]}) > 1]
    chosen = next(iter(mixed or judged), None)
    return None if chosen is None else _group(chosen, members[chosen.group_id])


def _group(verdict: Verdict, members: Sequence[Trajectory]) -> ShownGroup:
    opening = shared_opening(members)
    scores = verdict.scores or {}
    ranked = sorted(members, key=lambda t: -scores.get(t.trajectory_id, -1.0))
    return ShownGroup(
        group_id=verdict.group_id,
        opening=conversation(ranked[0])[:opening],
        attempts=[
            Attempt(
                trajectory=t,
                utterances=conversation(t, opening),
                words=verdict.explanations.get(t.trajectory_id, ""),
            )
            for t in ranked
        ],
        verdict=verdict,
    )


def _shown_trajectory(run: Run) -> ShownTrajectory | None:
    """The first graded failure with a known first wrong step; without one, the first graded."""
    part = next((p for p in run.parts("grades") if p in run.parts("trajectories")), None)
    if part is None:
        return None
    graded = [g for g in records.grades(run, part) if g.steps]
    wrong = [g for g in graded if g.first_wrong_step is not None]
    chosen = next(iter(wrong or graded), None)
    if chosen is None:
        return None
    for trajectory in run.read_trajectories(part):
        if trajectory.trajectory_id == chosen.trajectory_id:
            return ShownTrajectory(trajectory=trajectory, graded=chosen, utterances=conversation(trajectory))
    return None

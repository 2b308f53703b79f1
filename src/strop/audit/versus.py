"""Win rate over an earlier policy: attempts of both in one group, judged without knowing whose is whose.

Scores mean something inside a group only, so the mean score of a policy that improves stays where it is. Put
into one group with attempts of the policy before training, the same scores tell.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from strop.stats.intervals import Estimate, cluster_mean
from strop.trajectory.model import Group, Trajectory

Side = Literal["policy", "start"]
TIE = 1e-6
"""Scores that lie closer together than this are equal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Whose attempt it is, and its own id."""

    side: Side
    trajectory_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """A group to be judged, and whose each attempt of it is, by the id it has there."""

    group: Group
    origins: Mapping[str, Origin]


def match(
    policy: Sequence[Trajectory], start: Sequence[Trajectory], name: str, rng: np.random.Generator
) -> Match:
    """Attempts of both policies at one scenario as one group in random order.

    What a judge gets is the conversation under a new id, and nothing else by which to tell them apart: no
    turns, truth, score or metadata. Attempts that failed stay unscored. Both must be of one scenario.
    """
    sides: list[tuple[Side, Trajectory]] = [("policy", t) for t in policy] + [("start", t) for t in start]
    (scenario_id,) = {t.scenario_id for _, t in sides}
    group_id = f"{scenario_id}/{name}"
    order = rng.permutation(len(sides))
    origins: dict[str, Origin] = {}
    members = []
    for place, index in enumerate(order):
        side, attempt = sides[int(index)]
        trajectory_id = f"{group_id}/{place}"
        origins[trajectory_id] = Origin(side=side, trajectory_id=attempt.trajectory_id)
        members.append(_bare(attempt, trajectory_id, group_id))
    group = Group(group_id=group_id, scenario_id=scenario_id, trajectories=tuple(members))
    return Match(group=group, origins=origins)


def win_rate(matches: Sequence[Match], rng: np.random.Generator) -> Estimate:
    """Share of pairs, one attempt of each policy, that the policy's wins, ties half, resampled by scenario.

    `matches` hold judged groups. Pairs without both scores are left out, and a match without any pair is
    counted as excluded: nothing that was not judged counts as lost. 0.5 is no progress.
    """
    outcomes, scenarios = [], []
    excluded = 0
    for each in matches:
        won = [_won(mine, theirs) for mine in _scores(each, "policy") for theirs in _scores(each, "start")]
        outcomes += won
        scenarios += [each.group.scenario_id] * len(won)
        excluded += not won
    return replace(cluster_mean(outcomes, scenarios, rng), excluded=excluded)


def revealed(judged: Match) -> list[Trajectory]:
    """The judged attempts with what was kept from the judge: `policy` or `start`, and their own ids."""
    found = []
    for attempt in judged.group.trajectories:
        origin = judged.origins[attempt.trajectory_id]
        of = {"side": origin.side, "attempt_id": origin.trajectory_id}
        found.append(replace(attempt, metadata={**attempt.metadata, **of}))
    return found


def _bare(attempt: Trajectory, trajectory_id: str, group_id: str) -> Trajectory:
    return Trajectory(
        trajectory_id=trajectory_id,
        scenario_id=attempt.scenario_id,
        group_id=group_id,
        messages=attempt.messages,
        tools=attempt.tools,
        failure=attempt.failure,
        unscored=attempt.failure,
    )


def _scores(judged: Match, side: Side) -> list[float]:
    return [
        t.score
        for t in judged.group.trajectories
        if judged.origins[t.trajectory_id].side == side and t.score is not None
    ]


def _won(mine: float, theirs: float) -> float:
    return 0.5 if abs(mine - theirs) <= TIE else float(mine > theirs)

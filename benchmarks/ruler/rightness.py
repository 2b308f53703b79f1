"""Whether every score lands on the attempt that it was meant for, and how many groups stay without.

The planted judge has no noise here: what it means by an attempt is the quality marked in its text.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.ruler.ours import Judged
from strop.judge.planted import marked_quality
from strop.trajectory.model import Group

Scores = Mapping[str, float] | None
ROUNDING = 0.005


def our_scores(judged: Judged) -> list[Scores]:
    """By trajectory id, None for a group without a verdict. Groups that needed no call are as scored."""
    return [verdict.scores for verdict in judged.verdicts]


def their_scores(answer: Mapping[str, Any], groups: Sequence[Group]) -> list[Scores]:
    """The same, from the peer's answer."""
    return [
        None
        if scores is None
        else dict(zip((t.trajectory_id for t in group.trajectories), scores, strict=True))
        for group, scores in zip(groups, answer["scores"], strict=True)
    ]


def tally(groups: Sequence[Group], scores: Sequence[Scores]) -> dict[str, float]:
    """Attempts with another score than was meant, and those without one, among all that were to compare."""
    wrong = impossible = unscored = attempts = 0
    for group, given in zip(groups, scores, strict=True):
        for trajectory in group.trajectories:
            attempts += 1
            if given is None:
                unscored += 1
                continue
            score = given[trajectory.trajectory_id]
            wrong += not abs(score - _meant(trajectory.messages)) < ROUNDING
            impossible += not (math.isfinite(score) and 0 <= score <= 1)
    return {
        "attempts": attempts,
        "wrong": wrong,
        "of_those_no_number_in_0_to_1": impossible,
        "unscored": unscored,
        "unscored_share": round(unscored / attempts, 4),
    }


def _meant(messages: Sequence[Mapping[str, Any]]) -> float:
    found = marked_quality(str(messages[-1]["content"]))
    assert found is not None
    return found

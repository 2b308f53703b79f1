"""How far the judge may be believed: its order inside groups against truth, beside blind orders."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from strop.audit.cost import judge_cost
from strop.grader.comparison import Comparison, coin, over_coin
from strop.judge.verdict import Verdict
from strop.stats.agreement import RatedGroup, agreement_difference, pairwise_agreement
from strop.stats.intervals import Estimate, wilson
from strop.trajectory.model import Group, Trajectory

DEFAULT = "judge"
Rating = Mapping[str, float]
"""A number by trajectory id, higher is better."""


def audit_judge(
    groups: Sequence[Group], verdicts: Sequence[Verdict], rng: np.random.Generator
) -> dict[str, Any]:
    """The judge's audit as one JSON object.

    `agreement`: share of within-group pairs of different truth that the scores order as truth does,
    ties half, resampled by group; `measure, results, nulls, differences, excluded, beats_nulls,
    verdict`: that number beside its nulls (see `strop.grader.comparison`): shorter or longer attempt
    wins (characters the agent wrote), shown first or last wins (mean place over the judge's calls),
    a constant. `tied_share`: share of groups in which all scores are equal. `groups`, `attempts`:
    counts. `failures`: unscored attempts by reason. `cost`: see `strop.audit.cost.judge_cost`.
    """
    comparison = compare(groups, verdicts, rng)
    attempts = [t for group in groups for t in group.trajectories]
    return {
        "agreement": comparison.results[DEFAULT].to_json(),
        **comparison.to_json(),
        "tied_share": tied_share(groups).to_json(),
        "groups": len(groups),
        "attempts": len(attempts),
        "failures": dict(Counter(t.unscored for t in attempts if t.unscored is not None)),
        "cost": judge_cost(verdicts),
    }


def compare(groups: Sequence[Group], verdicts: Sequence[Verdict], rng: np.random.Generator) -> Comparison:
    """Pairwise agreement of the scores with truth beside nulls, all over the attempts with both."""
    scores = {t.trajectory_id: t.score for g in groups for t in g.trajectories if t.score is not None}
    blind = _blind(groups, verdicts, scores)
    agreement = pairwise_agreement(_rated(groups, scores), rng)
    nulls = {name: pairwise_agreement(_rated(groups, rating), rng) for name, rating in blind.items()}
    gains = {
        name: agreement_difference(_rated(groups, scores), _rated(groups, rating), rng)
        for name, rating in blind.items()
    }
    return Comparison(
        measure="pairwise agreement with truth",
        default=DEFAULT,
        results={DEFAULT: agreement},
        nulls=nulls | {"constant": coin(agreement.n)},
        differences=gains | {"constant": over_coin(agreement)},
        excluded=_excluded(groups),
    )


def tied_share(groups: Sequence[Group]) -> Estimate:
    """Share of groups with at least two scores whose scores are all equal: they teach nothing."""
    scored = [[t.score for t in group.trajectories if t.score is not None] for group in groups]
    counted = [scores for scores in scored if len(scores) > 1]
    return wilson(sum(len(set(scores)) == 1 for scores in counted), len(counted))


def written(trajectory: Trajectory) -> int:
    """Characters that the agent wrote: the text and tool calls of its messages."""
    own = [m for m in trajectory.messages if m.get("role") == "assistant"]
    return sum(len(_text(m.get("content"))) + len(_text(m.get("tool_calls"))) for m in own)


def places(verdicts: Sequence[Verdict]) -> dict[str, float]:
    """Mean place from 1 at which each trajectory was shown, over the replies that were good."""
    shown: dict[str, list[int]] = {}
    for reply in (r for v in verdicts for r in v.replies if r.failure is None):
        for place, ids in enumerate(reply.shown.values(), start=1):
            for trajectory_id in ids:
                shown.setdefault(trajectory_id, []).append(place)
    return {trajectory_id: float(np.mean(seen)) for trajectory_id, seen in shown.items()}


def _blind(groups: Sequence[Group], verdicts: Sequence[Verdict], scores: Rating) -> dict[str, Rating]:
    lengths = {t.trajectory_id: float(written(t)) for g in groups for t in g.trajectories}
    where = places(verdicts)
    blind: dict[str, Rating] = {
        "shorter wins": {name: -lengths[name] for name in scores},
        "longer wins": {name: lengths[name] for name in scores},
    }
    if scores and set(scores) <= set(where):
        blind["shown first wins"] = {name: -where[name] for name in scores}
        blind["shown last wins"] = {name: where[name] for name in scores}
    return blind


def _rated(groups: Sequence[Group], rating: Rating) -> list[RatedGroup]:
    return [
        RatedGroup(
            scores=[rating.get(t.trajectory_id) for t in group.trajectories],
            truths=[t.truth for t in group.trajectories],
        )
        for group in groups
    ]


def _excluded(groups: Sequence[Group]) -> dict[str, int]:
    attempts = [t for group in groups for t in group.trajectories]
    reasons = {
        "unscored": sum(t.score is None for t in attempts),
        "no truth": sum(t.score is not None and t.truth is None for t in attempts),
    }
    return {reason: count for reason, count in reasons.items() if count}


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)

"""How far scores agree with truth inside groups, where alone a relative score means anything."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from strop.errors import InputError
from strop.stats.intervals import LEVEL, RESAMPLES, Estimate, cluster_mean, cluster_ratio, finite_array


@dataclass(frozen=True, slots=True, kw_only=True)
class RatedGroup:
    """One group's scores and truths, one of each a trajectory; None where there is none."""

    scores: Sequence[float | None]
    truths: Sequence[float | None]


def pairwise_agreement(
    groups: Sequence[RatedGroup],
    rng: np.random.Generator,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
) -> Estimate:
    """Share of within-group pairs of different truth that the score orders as truth does; ties half.

    `n` counts pairs, `clusters` the groups that have any, `excluded` the trajectories that lack score
    or truth. A percentile bootstrap resamples groups. Chance level is 0.5, and so is a constant score.
    """
    counted = [_concordance(group) for group in groups]
    right = [c.concordant + c.score_tied / 2 for c in counted]
    estimate = cluster_ratio(right, [c.truth_differs for c in counted], rng, resamples, level)
    return replace(estimate, excluded=sum(c.excluded for c in counted))


def agreement_difference(
    ours: Sequence[RatedGroup],
    theirs: Sequence[RatedGroup],
    rng: np.random.Generator,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
) -> Estimate:
    """Pairwise agreement of `ours` less that of `theirs`, in [-1, 1], resampled together by group.

    Both rate the same groups, trajectory by trajectory, with the same truths; only those that both
    score count, the others are `excluded`. Raises InputError where groups or lengths differ.
    """
    if len(ours) != len(theirs):
        raise InputError(f"{len(ours)} groups but {len(theirs)} on the other side; give the same groups")
    shared = [_shared(mine, other) for mine, other in zip(ours, theirs, strict=True)]
    counted = [(_concordance(mine), _concordance(other)) for mine, other in shared]
    gains = [(m.concordant - o.concordant) + (m.score_tied - o.score_tied) / 2 for m, o in counted]
    estimate = cluster_ratio(gains, [m.truth_differs for m, _ in counted], rng, resamples, level)
    return replace(estimate, excluded=sum(m.excluded for m, _ in counted))


def mean_kendall_tau(
    groups: Sequence[RatedGroup],
    rng: np.random.Generator,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
) -> Estimate:
    """Mean over groups of Kendall's tau-b, bootstrapped by group; `excluded` counts groups without one.

    It is computed on (tau + 1) / 2, a share, so that groups that all agree perfectly get Wilson's bound.
    """
    taus = [kendall_tau(group) for group in groups]
    shares = [(tau + 1) / 2 for tau in taus if tau is not None]
    share = cluster_mean(shares, range(len(shares)), rng, resamples, level)
    return replace(
        share,
        estimate=_as_tau(share.estimate),
        low=_as_tau(share.low),
        high=_as_tau(share.high),
        excluded=len(taus) - len(shares),
    )


def _shared(mine: RatedGroup, other: RatedGroup) -> tuple[RatedGroup, RatedGroup]:
    """Both with a score only where both have one."""
    if list(mine.truths) != list(other.truths) or len(mine.scores) != len(other.scores):
        raise InputError("groups of different trajectories or truths; give the same ones on both sides")
    both = [a is not None and b is not None for a, b in zip(mine.scores, other.scores, strict=True)]
    return _only(mine, both), _only(other, both)


def _only(group: RatedGroup, kept: Sequence[bool]) -> RatedGroup:
    scores = [score if keep else None for score, keep in zip(group.scores, kept, strict=True)]
    return replace(group, scores=scores)


def _as_tau(share: float | None) -> float | None:
    return None if share is None else 2 * share - 1


def kendall_tau(group: RatedGroup) -> float | None:
    """Kendall's tau-b (1945) of score and truth in one group, in [-1, 1].

    (concordant - discordant) / sqrt(pairs untied in score * pairs untied in truth). None where all
    scores or all truths are equal, or fewer than two trajectories have both.
    """
    c = _concordance(group)
    if not c.score_differs or not c.truth_differs:
        return None
    return float((c.concordant - c.discordant) / np.sqrt(float(c.score_differs) * float(c.truth_differs)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Concordance:
    """Counts of unordered pairs; `score_tied` counts only those whose truth differs."""

    concordant: int
    discordant: int
    score_tied: int
    score_differs: int
    truth_differs: int
    excluded: int


def _concordance(group: RatedGroup) -> _Concordance:
    scores, truths = _complete(group)
    first, second = np.triu_indices(len(scores), k=1)
    by_score = np.sign(scores[first] - scores[second])
    by_truth = np.sign(truths[first] - truths[second])
    return _Concordance(
        concordant=int(np.sum(by_score * by_truth > 0)),
        discordant=int(np.sum(by_score * by_truth < 0)),
        score_tied=int(np.sum((by_score == 0) & (by_truth != 0))),
        score_differs=int(np.count_nonzero(by_score)),
        truth_differs=int(np.count_nonzero(by_truth)),
        excluded=len(group.scores) - len(scores),
    )


def _complete(group: RatedGroup) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    if len(group.scores) != len(group.truths):
        raise InputError(f"{len(group.scores)} scores but {len(group.truths)} truths; give one of each")
    pairs = [
        (score, truth)
        for score, truth in zip(group.scores, group.truths, strict=True)
        if score is not None and truth is not None
    ]
    scores, truths = zip(*pairs, strict=True) if pairs else ((), ())
    return finite_array(scores, "scores"), finite_array(truths, "truths")

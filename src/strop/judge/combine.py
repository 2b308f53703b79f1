"""Many judgements as one: a score in [0, 1] for every id, how far they agree, how much they scatter.

Pure, by ids. Renaming the ids or listing the ballots in another order changes nothing else. Sums are exact
on the decimals that the judge wrote, so that what is tied stays tied.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from math import comb, fsum, sqrt

import numpy as np
from numpy.typing import NDArray

from strop.judge.settings import ALONE, Combination, Mode
from strop.stats import ranking

_METHODS: Mapping[str, str] = {"mean": "mean", "borda": "Borda", "kemeny": "Kemeny"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ballot:
    """One good call: score in [0, 1] by entry id, in the order shown."""

    scores: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Combined:
    """Scores in [0, 1] by entry id, and what the ballots say of them.

    `reliability` see `reliability`. `noise` is the standard error of a score from the spread between the
    ballots that show an id in the same company, pooled over ids; None where no two do. It is in units of the
    score for means, and of the share of others placed below for the rest. Where orders mirror each other the
    spread holds position effects that cancel in the score: then it is an upper bound.
    """

    scores: Mapping[str, float]
    reliability: float | None
    noise: float | None
    method: str


def combine(ballots: Sequence[Ballot], combination: Combination, mode: Mode) -> Combined:
    """The ballots as one. An id that no ballot holds gets no score; no ballot, no scores.

    "pointwise" and "logprob": the mean. "pairwise": the mean over opponents of the share won, ties half.
    "listwise": by `combination` where all ballots show the same ids, "borda" the share of others placed
    below, "kemeny" the average place over all optimal orders; overlapping subsets by Plackett and Luce's
    model, the score being the mean probability of beating the others. There "mean" first averages
    the ballots on the same subset; the others take each ballot's order as it is.
    """
    scores, method, ranks = _scores(ballots, combination, mode)
    return Combined(
        scores=scores, reliability=reliability(ballots), noise=_noise(ballots, ranks=ranks), method=method
    )


def reliability(ballots: Sequence[Ballot]) -> float | None:
    """Share of pairs of ids that two ballots order alike, in [0, 1], over all two ballots that show the pair.

    Tied in both is alike, tied in one counts half. None where no pair is on two ballots.
    """
    alike = pairs = 0
    for rises, ties, falls in _orders_of_pairs(ballots):
        alike += 2 * (comb(rises, 2) + comb(ties, 2) + comb(falls, 2)) + ties * (rises + falls)
        pairs += 2 * comb(rises + ties + falls, 2)
    return alike / pairs if pairs else None


def _scores(
    ballots: Sequence[Ballot], combination: Combination, mode: Mode
) -> tuple[dict[str, float], str, bool]:
    """Scores, method, and whether they are made of ranks."""
    if mode in ALONE:
        return _means(ballots), f"{mode} mean", False
    if mode == "pairwise":
        return _named(ballots, ranking.borda(_table(ballots))), "pairwise win share", True
    if len({frozenset(ballot.scores) for ballot in ballots}) > 1:
        return _from_subsets(ballots, combination), "listwise subsets Plackett-Luce", True
    method = f"listwise {_METHODS[combination]}"
    if combination == "mean":
        return _means(ballots), method, False
    rank = ranking.borda if combination == "borda" else ranking.kemeny
    return _named(ballots, rank(_table(ballots))), method, True


def _means(ballots: Sequence[Ballot]) -> dict[str, float]:
    sums: dict[str, list[Fraction]] = {}
    for ballot in ballots:
        for name, score in ballot.scores.items():
            sums.setdefault(name, []).append(_exact(score))
    return {name: float(sum(values) / len(values)) for name, values in sums.items()}


def _from_subsets(ballots: Sequence[Ballot], combination: Combination) -> dict[str, float]:
    if combination == "mean":
        by_ids: dict[frozenset[str], list[Ballot]] = {}
        for ballot in ballots:
            by_ids.setdefault(frozenset(ballot.scores), []).append(ballot)
        ballots = [Ballot(scores=_means(same)) for same in by_ids.values()]
    strengths = ranking.plackett_luce(_table(ballots))
    return _named(ballots, ranking.mean_win_probability(strengths).tolist())


def _ids(ballots: Sequence[Ballot]) -> list[str]:
    """All ids in order of first appearance, which no name has a part in."""
    return list(dict.fromkeys(name for ballot in ballots for name in ballot.scores))


def _table(ballots: Sequence[Ballot]) -> NDArray[np.float64]:
    ids = _ids(ballots)
    rows = [[ballot.scores.get(name, np.nan) for name in ids] for ballot in ballots]
    return np.array(rows, dtype=np.float64).reshape(len(rows), len(ids))


def _named(ballots: Sequence[Ballot], values: Sequence[float | None]) -> dict[str, float]:
    """Values by id; an id that was shown but never compared has nothing for or against it: 0.5."""
    return {name: 0.5 if value is None else value for name, value in zip(_ids(ballots), values, strict=True)}


def _orders_of_pairs(ballots: Sequence[Ballot]) -> list[list[int]]:
    """For every pair of ids: on how many ballots the first is higher, is tied, is lower."""
    number = {name: i for i, name in enumerate(_ids(ballots))}
    counts: dict[tuple[int, int], list[int]] = {}
    for ballot in ballots:
        items = sorted((number[name], score) for name, score in ballot.scores.items())
        for (i, one), (j, other) in combinations(items, 2):
            place = 0 if one > other else 1 if one == other else 2
            counts.setdefault((i, j), [0, 0, 0])[place] += 1
    return list(counts.values())


def _noise(ballots: Sequence[Ballot], *, ranks: bool) -> float | None:
    seen: dict[tuple[str, frozenset[str]], list[float]] = {}
    times: dict[str, int] = {}
    for ballot in ballots:
        company = frozenset(ballot.scores)
        for name, value in (_shares_below(ballot) if ranks else ballot.scores).items():
            seen.setdefault((name, company), []).append(value)
            times[name] = times.get(name, 0) + 1
    freedom = sum(len(values) - 1 for values in seen.values())
    if freedom == 0:
        return None
    variance = fsum(part for values in seen.values() for part in _squares(values)) / freedom
    return sqrt(variance * fsum(1 / many for many in times.values()) / len(times))


def _squares(values: Sequence[float]) -> list[float]:
    """Parts of the sum of squares about the mean, from differences of two, so that equal values give 0."""
    return [(one - other) ** 2 / len(values) for one, other in combinations(values, 2)]


def _shares_below(ballot: Ballot) -> dict[str, float]:
    """Share of the others that the ballot places below, ties half; 0.5 for an id alone."""
    scores = list(ballot.scores.values())
    if len(scores) == 1:
        return dict.fromkeys(ballot.scores, 0.5)
    halves = {
        name: 2 * sum(other < score for other in scores) + scores.count(score) - 1
        for name, score in ballot.scores.items()
    }
    return {name: count / (2 * (len(scores) - 1)) for name, count in halves.items()}


def _exact(score: float) -> Fraction:
    """The decimal number that the judge wrote, not its nearest binary one: 0.2 and 0.4 average to 0.3."""
    return Fraction(repr(float(score)))

"""One order from many: pairwise shares, Borda, Kemeny, Plackett–Luce and Bradley–Terry.

Ballots are an array [B, N] of scores, higher is better, NaN where a ballot does not show an item. Only the
order inside a ballot counts. Relabelling the items permutes every result and changes nothing else.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import combinations
from math import comb

import numpy as np
from numpy.typing import ArrayLike, NDArray

from strop.errors import InputError

Array = NDArray[np.float64]

KEMENY_MOST = 12
"""Above this the subsets that `kemeny` walks become too many."""
PRIOR = 0.1
"""Wins, and as many losses, of every item against one of strength 0 that were never seen."""
SPLIT_EXACTLY = 8
STEPS = 200
LONGEST = 4.0
SMALL = 1e-6
"""Newton steps double the right digits: after one as small as this the rest is rounding."""
ALIKE = 1e-9
"""Strengths that lie closer together than this differ by rounding only."""


def preferences(ballots: ArrayLike) -> Array:
    """How often row item was placed above column item, a tie half to each, [N, N] with a 0 diagonal.

    Items that a ballot does not show together count nothing there. Raises InputError unless `ballots` has
    two axes and holds finite numbers or NaN.
    """
    scores = _ballots(ballots)
    above = scores[:, :, None] > scores[:, None, :]
    tied = scores[:, :, None] == scores[:, None, :]
    wins: Array = above.sum(axis=0) + tied.sum(axis=0) / 2
    np.fill_diagonal(wins, 0.0)
    return wins


def win_shares(wins: ArrayLike) -> list[float | None]:
    """Mean over the opponents met of the share of comparisons won, in [0, 1]; None for an item without any.

    `wins` [N, N] as `preferences` gives them. Summed as fractions, so that what is tied is equal exactly.
    """
    rows = _square(wins).tolist()
    shares: list[float | None] = []
    for i, row in enumerate(rows):
        met = [
            Fraction(won) / (Fraction(won) + Fraction(rows[j][i]))
            for j, won in enumerate(row)
            if won + rows[j][i] > 0
        ]
        shares.append(float(sum(met) / len(met)) if met else None)
    return shares


def borda(ballots: ArrayLike) -> list[float | None]:
    """Borda's count (1781) as the share of others placed below, ties half, in [0, 1].

    Equal to the mean over ballots where all show all items. None for an item that was never compared.
    """
    return win_shares(preferences(ballots))


def kemeny(ballots: ArrayLike) -> list[float]:
    """Place in the orders that contradict the fewest pairs (Kemeny 1959): 1 first, 0 last.

    Exact: every subset of items as the top of an order is walked (Davenport and Kalagnanam 2004 count the
    same pairs). An item's place is its average over all optimal orders, of which there may be many, so that
    items that may be swapped are equal. A tied pair contradicts neither way. One item gets 0.5. Raises
    InputError above KEMENY_MOST items.
    """
    wins = preferences(ballots)
    n = len(wins)
    if n > KEMENY_MOST:
        raise InputError(f"an exact Kemeny order of {n} items; it can be had for at most {KEMENY_MOST}")
    if n < 2:
        return [0.5] * n
    halves = np.rint(2 * wins).astype(np.int64).tolist()
    # The cost of putting an item next is what all items not yet placed won against it.
    down, ways_down = _remaining(halves)
    ways_up = [0] * (1 << n)
    ways_up[0] = 1
    places = [0] * n
    for top in range((1 << n) - 1):
        if ways_up[top]:
            for i, cost in _next_items(top, halves):
                after = top | 1 << i
                if down[top] == cost + down[after]:
                    ways_up[after] += ways_up[top]
                    places[i] += ways_up[top] * ways_down[after] * top.bit_count()
    return [float(1 - Fraction(place, ways_down[0] * (n - 1))) for place in places]


def plackett_luce(ballots: ArrayLike, prior: float = PRIOR) -> Array:
    """Log strengths [N] under Plackett and Luce's model: the next place goes to i with share e^θi / Σ e^θj.

    The maximum of the concave log likelihood of Hunter (2004), here by Newton steps with halving, which do
    not stall where minorisation does. Ties are split evenly over all their orders, so that two tied items
    get half a win each; in ties of more than SPLIT_EXACTLY the items not yet placed count by their expected
    share of the tie (Efron 1977). Every item also has `prior` wins and losses against an imagined item of
    strength 0: winless, unbeaten and unconnected items stay finite, and an item that no ballot compares gets
    0. Equal strengths are equal exactly. Raises InputError unless prior > 0.
    """
    scores = _ballots(ballots)
    n = scores.shape[1]
    stages = _Stages(won=np.zeros(n))
    for row in scores:
        stages.add(row)
    sets = np.asarray(stages.sets, dtype=np.float64).reshape(len(stages.sets), n)
    return _strengths(stages.won, sets, np.asarray(stages.weights), prior)


def bradley_terry(wins: ArrayLike, prior: float = PRIOR) -> Array:
    """Log strengths [N] under Bradley and Terry's model (1952), the two-item case of `plackett_luce`.

    `wins` [N, N] as `preferences` gives them: ties are half a win each. Prior and ties as there.
    """
    table = _square(wins)
    first, second = np.nonzero(np.triu(table + table.T))
    sets = np.zeros((len(first), len(table)))
    rows = np.arange(len(first))
    sets[rows, first] = sets[rows, second] = 1.0
    return _strengths(table.sum(axis=1), sets, (table + table.T)[first, second], prior)


def mean_win_probability(strengths: ArrayLike) -> Array:
    """Mean probability of being placed above each of the others, in [0, 1]; one item alone gets 0.5."""
    theta = np.asarray(strengths, dtype=np.float64)
    n = len(theta)
    if n < 2:
        return np.full(n, 0.5)
    # Rows are sorted so that equal strengths add equal numbers in one and the same order.
    against = np.sort(_logistic(theta[:, None] - theta[None, :]), axis=1)
    shares: Array = np.clip((against.sum(axis=1) - 0.5) / (n - 1), 0.0, 1.0)
    return shares


def _remaining(halves: Sequence[Sequence[int]]) -> tuple[list[int], list[int]]:
    """For every set of items at the top: the least cost of ordering the rest, and the ways to have it."""
    full = (1 << len(halves)) - 1
    down, ways = [0] * (full + 1), [0] * full + [1]
    for top in range(full - 1, -1, -1):
        costs = [(cost + down[top | 1 << i], ways[top | 1 << i]) for i, cost in _next_items(top, halves)]
        least = min(cost for cost, _ in costs)
        down[top] = least
        ways[top] = sum(many for cost, many in costs if cost == least)
    return down, ways


def _next_items(top: int, halves: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    rest = [i for i in range(len(halves)) if not top >> i & 1]
    return [(i, sum(halves[j][i] for j in rest)) for i in rest]


@dataclass(slots=True)
class _Stages:
    """Who might have been placed next, as weights [N] of every choice made; and each item's wins [N]."""

    won: Array
    sets: list[Array] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)

    def add(self, row: Array) -> None:
        """The stages of one ballot, from its last tie up."""
        lower = np.zeros(len(row))
        for value in np.unique(row[~np.isnan(row)]):
            tied = (row == value).astype(np.float64)
            size = round(tied.sum())
            # The last of the last tie is placed without a choice.
            left = range(size, 0 if lower.any() else 1, -1)
            for m in left:
                self._add_choice(tied, size, m, lower)
            self.won += tied * (len(left) / size)
            lower += tied

    def _add_choice(self, tied: Array, size: int, m: int, lower: Array) -> None:
        """A choice among `lower` and m of the tied, whichever they are."""
        if size > SPLIT_EXACTLY:
            self.sets.append(tied * (m / size) + lower)
            self.weights.append(1.0)
            return
        for some in combinations(np.flatnonzero(tied), m):
            still = lower.copy()
            still[list(some)] = 1.0
            self.sets.append(still)
            self.weights.append(1 / comb(size, m))


def _strengths(won: Array, sets: Array, weights: Array, prior: float) -> Array:
    """The θ [N] of most Σ won θ - Σ weights log(sets e^θ) + the prior, from stages `sets` [S, N]."""
    if not prior > 0:
        raise InputError(f"prior {prior}; it must be above 0, or strengths may be infinite")
    theta = np.zeros(len(won))
    for _ in range(STEPS):
        slope, curvature = _derivatives(theta, won, sets, weights, prior)
        step = np.linalg.solve(curvature, slope)
        length = float(np.abs(step).max(initial=0.0))
        if length < SMALL:
            theta = theta + step
            break
        step *= min(1.0, LONGEST / length)
        level = _log_posterior(theta, won, sets, weights, prior)
        while length > SMALL and _log_posterior(theta + step, won, sets, weights, prior) < level:
            step, length = step / 2, length / 2
        theta = theta + step
    return _level_ties(theta)


def _log_posterior(theta: Array, won: Array, sets: Array, weights: Array, prior: float) -> float:
    top = theta.max(initial=0.0)
    sums = np.log(sets @ np.exp(theta - top)) + top
    seen = won @ theta - weights @ sums
    return float(seen + prior * np.sum(theta - 2 * np.logaddexp(0.0, theta)))


def _derivatives(theta: Array, won: Array, sets: Array, weights: Array, prior: float) -> tuple[Array, Array]:
    """Slope [N] and negative curvature [N, N], which is positive definite for prior > 0."""
    shares = sets * np.exp(theta - theta.max(initial=0.0))
    shares /= shares.sum(axis=1, keepdims=True)
    p = _logistic(theta)
    expected = weights @ shares
    slope = won - expected + prior * (1 - 2 * p)
    curvature = np.diag(expected + 2 * prior * p * (1 - p)) - shares.T @ (weights[:, None] * shares)
    return slope, curvature


def _level_ties(theta: Array) -> Array:
    """The strengths with those that differ by rounding only made equal."""
    order = np.argsort(theta, kind="stable")
    if not len(order):
        return theta
    steps = np.diff(theta[order], prepend=theta[order[0]]) > ALIKE
    runs = np.cumsum(steps)
    means = np.bincount(runs, weights=theta[order]) / np.bincount(runs)
    level = np.empty_like(theta)
    level[order] = means[runs]
    return level


def _logistic(x: Array) -> Array:
    half: Array = 0.5 * (1 + np.tanh(x / 2))
    return half


def _ballots(ballots: ArrayLike) -> Array:
    scores = np.asarray(ballots, dtype=np.float64)
    if scores.ndim != 2:
        raise InputError(f"ballots of shape {scores.shape}; give one row a ballot, one column an item")
    if np.isinf(scores).any():
        raise InputError("a ballot holds an infinite score; leave the item out with NaN")
    return scores


def _square(wins: ArrayLike) -> Array:
    table = np.asarray(wins, dtype=np.float64)
    if table.ndim != 2 or table.shape[0] != table.shape[1]:
        raise InputError(f"wins of shape {table.shape}; give one row and one column an item")
    if not (np.isfinite(table) & (table >= 0)).all():
        raise InputError("wins must be finite and not negative")
    return table

"""Rank aggregation against brute force, scipy's optimiser, and what choix and evalica print."""

import csv
import os
from collections.abc import Sequence
from itertools import pairwise, permutations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import minimize

from strop.errors import InputError
from strop.stats.ranking import (
    borda,
    bradley_terry,
    kemeny,
    mean_win_probability,
    plackett_luce,
    preferences,
    win_shares,
)

DATA = Path(os.environ.get("STROP_DATA", Path(__file__).parents[3] / "shared" / "data")) / "evalica"

levels = st.sampled_from([0.1, 0.5, 0.9, float("nan")])
partial = st.tuples(st.integers(1, 5), st.integers(1, 5)).flatmap(
    lambda shape: arrays(np.float64, shape, elements=levels)
)
tied = st.tuples(st.integers(1, 4), st.integers(1, 5)).flatmap(
    lambda shape: arrays(np.float64, shape, elements=st.sampled_from([0.1, 0.5, 0.9]))
)

# Best first. The strengths below are choix 0.4.1's: ilsr_rankings(5, RANKINGS, tol=1e-13, max_iter=10000).
RANKINGS = [
    (0, 1, 2, 3), (1, 0, 3, 2), (3, 0, 1, 2), (2, 0, 1, 3), (0, 2, 1, 3), (1, 3, 2, 0), (4, 0, 2), (1, 4, 3),
    (3, 4),
]  # fmt: skip
BY_CHOIX = [
    0.44809108400660674,
    0.5011361938786852,
    -0.4705106142452118,
    -0.581915818807024,
    0.10319915516694385,
]

WINS = np.array([[0, 3, 1, 3], [1, 0, 2, 0], [0, 1, 0, 4], [2, 0, 1, 0]], dtype=np.float64)
# choix 0.4.1: ilsr_pairwise on the same comparisons, tol=1e-13.
PAIRS_BY_CHOIX = [0.581488099344416, 0.02869156440283118, -0.023502493533803598, -0.5866771702134437]
DRAWS = np.array([[0, 1, 0, 1], [1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 1, 0]], dtype=np.float64) / 2
# evalica 0.4.2: log of bradley_terry's scores, centred, on WINS and one draw for each 1 of DRAWS.
DRAWN_BY_EVALICA = [0.4738075407071022, 0.02685033687243837, -0.022737515932869927, -0.4779203616466706]


def as_ballots(rankings: Sequence[Sequence[int]], n: int) -> np.ndarray:
    table = np.full((len(rankings), n), np.nan)
    for row, order in zip(table, rankings, strict=True):
        row[list(order)] = -np.arange(len(order), dtype=np.float64)
    return table


def centred(values: Sequence[float]) -> np.ndarray:
    return np.asarray(values) - np.mean(values)


def kemeny_by_search(ballots: np.ndarray) -> list[float]:
    """Average place in all orders of least disagreement, by trying every order."""
    n = ballots.shape[1]
    costs: dict[tuple[int, ...], int] = {}
    for order in permutations(range(n)):
        pairs = [(order[a], order[b]) for a in range(n) for b in range(a + 1, n)]
        costs[order] = sum(int((ballots[:, high] < ballots[:, low]).sum()) for high, low in pairs)
    best = [order for order, cost in costs.items() if cost == min(costs.values())]
    if n == 1:
        return [0.5]
    return [1 - sum(order.index(i) for order in best) / len(best) / (n - 1) for i in range(n)]


@pytest.mark.parametrize(
    ("ballots", "expected"),
    [
        ([[3, 2, 1]], [1, 0.5, 0]),
        ([[3, 2, 1], [1, 2, 3]], [0.5, 0.5, 0.5]),
        ([[3, 3, 1]], [0.75, 0.75, 0]),
        # Condorcet's circle: three optimal orders, every item once in every place.
        ([[3, 2, 1], [1, 3, 2], [2, 1, 3]], [0.5, 0.5, 0.5]),
        # A majority of pairs, not of points: Borda puts item 1 first (7 points to 6), Kemeny item 0.
        ([[3, 2, 1], [3, 2, 1], [3, 2, 1], [1, 3, 2], [1, 3, 2]], [1, 0.5, 0]),
        ([[0.2]], [0.5]),
    ],
)
def test_kemeny_by_hand(ballots: list[list[float]], expected: list[float]) -> None:
    assert kemeny(ballots) == expected


def test_borda_and_kemeny_may_disagree() -> None:
    points = borda([[3, 2, 1], [3, 2, 1], [3, 2, 1], [1, 3, 2], [1, 3, 2]])
    assert points == [0.6, 0.7, 0.2]


@given(tied)
def test_kemeny_is_the_average_over_all_optimal_orders(ballots: np.ndarray) -> None:
    assert kemeny(ballots) == pytest.approx(kemeny_by_search(ballots), abs=1e-12)


def test_kemeny_of_eight_against_every_order() -> None:
    ballots = np.random.default_rng(4).integers(0, 5, size=(3, 8)).astype(np.float64)
    wins = preferences(ballots)
    orders = np.array(list(permutations(range(8))))
    cost = sum(wins[orders[:, b], orders[:, a]] for a in range(8) for b in range(a + 1, 8))
    best = orders[cost == cost.min()]
    assert len(best) > 1
    places = np.argsort(best, axis=1).mean(axis=0)
    assert kemeny(ballots) == pytest.approx((1 - places / 7).tolist(), abs=1e-12)


def test_kemeny_of_too_many() -> None:
    with pytest.raises(InputError, match="at most 12"):
        kemeny(np.zeros((1, 13)))


@given(tied)
def test_borda_is_the_mean_share_of_others_below(ballots: np.ndarray) -> None:
    n = ballots.shape[1]
    points = borda(ballots)
    for i in range(n):
        others = [j for j in range(n) if j != i]
        share = [
            np.mean([1.0 * (row[j] < row[i]) + 0.5 * (row[j] == row[i]) for j in others]) if others else 0
            for row in ballots
        ]
        assert points[i] == (pytest.approx(np.mean(share), abs=1e-12) if others else None)


def test_pairs_that_a_ballot_does_not_show_count_nothing() -> None:
    ballots = [[1, 0, np.nan], [np.nan, 1, 1], [0.5, np.nan, np.nan]]
    assert preferences(ballots).tolist() == [[0, 1, 0], [0, 0, 0.5], [0, 0.5, 0]]
    assert borda(ballots) == [1, 0.25, 0.5]
    assert borda([[1, np.nan], [np.nan, 1]]) == [None, None]


def test_win_shares_of_thirds_are_equal_exactly() -> None:
    # One third plus two thirds is one, as is one plus nothing: 1/2 each, without a rest.
    wins = np.array([[0, 1, 2, 0], [2, 0, 0, 3], [1, 0, 0, 0], [0, 0, 0, 0]], dtype=np.float64)
    shares = win_shares(wins)
    assert shares[0] == 0.5
    assert shares[1] == 5 / 6  # 2/3 and 1; as floats their mean would be off by one in the last place


def test_plackett_luce_as_choix() -> None:
    found = plackett_luce(as_ballots(RANKINGS, 5), prior=1e-8)
    assert centred(found.tolist()) == pytest.approx(BY_CHOIX, abs=1e-7)


def test_bradley_terry_as_choix_and_evalica() -> None:
    assert centred(bradley_terry(WINS, 1e-8).tolist()) == pytest.approx(PAIRS_BY_CHOIX, abs=1e-7)
    assert centred(bradley_terry(WINS + DRAWS, 1e-8).tolist()) == pytest.approx(DRAWN_BY_EVALICA, abs=1e-7)


@given(partial, st.sampled_from([0.01, 0.1, 1.0]))
def test_two_item_rankings_are_bradley_terry(ballots: np.ndarray, prior: float) -> None:
    n = ballots.shape[1]
    rows = [
        [row[k] if k in (i, j) else np.nan for k in range(n)]
        for row in ballots for i in range(n) for j in range(i)
    ]  # fmt: skip
    pairs = np.array(rows, dtype=np.float64).reshape(-1, n)
    found = plackett_luce(pairs, prior)
    assert found == pytest.approx(bradley_terry(preferences(pairs), prior), abs=1e-8)


@pytest.mark.parametrize("seed", range(4))
def test_plackett_luce_as_scipy_maximises_it(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rankings = [rng.permutation(5)[: rng.integers(2, 6)].tolist() for _ in range(4)]
    prior = 0.1

    def loss(theta: np.ndarray) -> float:
        seen = sum(
            theta[order[at]] - np.log(np.exp(theta[order[at:]]).sum())
            for order in map(np.array, rankings) for at in range(len(order))
        )  # fmt: skip
        imagined = prior * np.sum(theta - 2 * np.log1p(np.exp(theta)))
        return -float(seen + imagined)

    twin = minimize(loss, np.zeros(5), method="BFGS", options={"gtol": 1e-8})
    assert plackett_luce(as_ballots(rankings, 5), prior) == pytest.approx(twin.x, abs=1e-5)


@pytest.mark.parametrize("tied", [[2, 1, 1, 0], [2, 2, 1, 0], [1, 1, 1, 0], [1, 0, 0, 0], [0, 0, 0, 0]])
def test_a_tie_is_split_evenly_over_its_orders(tied: list[float]) -> None:
    orders = [
        order for order in permutations(range(4))
        if all(tied[first] >= tied[second] for first, second in pairwise(order))
    ]  # fmt: skip
    others = as_ballots([(0, 2, 1, 3), (3, 0, 1), (0, 3, 2)], 4).tolist()
    weighed = len(orders)
    exact = plackett_luce([*as_ballots(orders, 4).tolist(), *others * weighed], prior=0.1 * weighed)
    assert plackett_luce([tied, *others]) == pytest.approx(exact, abs=1e-9)


def test_a_large_tie_is_split_approximately() -> None:
    rng = np.random.default_rng(0)
    others = rng.normal(np.arange(10) / 5, 1.0, size=(6, 10)).tolist()
    tied = [1.0] * 9 + [0.0]
    split = [[*rng.permutation(9).tolist(), -1] for _ in range(400)]
    exact = plackett_luce([*split, *others * 400], prior=40)
    assert plackett_luce([tied, *others]) == pytest.approx(exact, abs=0.1)


@pytest.mark.parametrize(
    "ballots",
    [[[3, 2, 1]], [[2, 1, np.nan, np.nan], [np.nan, np.nan, 2, 1]], [[1, np.nan]], np.zeros((0, 3))],
)
def test_winless_unbeaten_and_unconnected_items_stay_finite(ballots: list[list[float]]) -> None:
    strengths = plackett_luce(ballots)
    assert np.isfinite(strengths).all()
    shares = mean_win_probability(strengths)
    assert ((shares >= 0) & (shares <= 1)).all()


def test_an_unbeaten_item_by_hand() -> None:
    # Two items, one win: stationary where 1 - s(2t) + prior (1 - 2 s(t)) = 0, with s the logistic function.
    t = plackett_luce([[1, 0]], prior=0.1)[0]
    s = 1 / (1 + np.exp(-t))
    won = 1 / (1 + np.exp(-2 * t))
    assert 1 - won + 0.1 * (1 - 2 * s) == pytest.approx(0, abs=1e-9)
    assert mean_win_probability([t, -t]) == pytest.approx([won, 1 - won])


def test_what_is_tied_has_equal_strengths_exactly() -> None:
    circle = as_ballots([(0, 1, 2), (1, 2, 0), (2, 0, 1)], 4)
    assert len(set(plackett_luce(circle)[:3].tolist())) == 1
    level = plackett_luce(np.full((3, 7), 0.7))
    assert len(set(level.tolist())) == 1
    assert level[0] == pytest.approx(0, abs=1e-12)
    assert set(mean_win_probability(level).tolist()) == {0.5}


@given(partial, st.randoms(use_true_random=False))
def test_relabelling_permutes_and_changes_nothing_else(ballots: np.ndarray, random: object) -> None:
    n = ballots.shape[1]
    moved = list(range(n))
    random.shuffle(moved)  # type: ignore[attr-defined]
    renamed = ballots[::-1, moved]
    assert borda(renamed) == [borda(ballots)[i] for i in moved]
    assert kemeny(renamed) == [kemeny(ballots)[i] for i in moved]
    assert plackett_luce(renamed) == pytest.approx(plackett_luce(ballots)[moved], abs=1e-8)


def test_wrong_input() -> None:
    for wrong, message in (
        (lambda: preferences([1.0, 2.0]), "one row a ballot"),
        (lambda: preferences([[np.inf]]), "infinite"),
        (lambda: win_shares([[0, 1]]), "one row and one column"),
        (lambda: bradley_terry([[0, -1], [0, 0]]), "not negative"),
        (lambda: plackett_luce([[1, 0]], prior=0), "above 0"),
    ):
        with pytest.raises(InputError, match=message):
            wrong()


@pytest.mark.skipif(not DATA.is_dir(), reason="public data folder `evalica` is not here; set STROP_DATA")
def test_golden_values_of_llmfao() -> None:
    with (DATA / "llmfao.csv").open(encoding="utf-8") as lines:
        votes = list(csv.DictReader(lines))
    with (DATA / "llmfao-golden.csv").open(encoding="utf-8") as lines:
        golden = {(row["algorithm"], row["item"]): float(row["score"]) for row in csv.DictReader(lines)}
    names = sorted({vote[side] for vote in votes for side in ("left", "right")})
    wins = np.zeros((len(names), len(names)))
    for vote in votes:
        i, j = names.index(vote["left"]), names.index(vote["right"])
        share = {"left": 1.0, "right": 0.0, "tie": 0.5}[vote["winner"]]
        wins[i, j] += share
        wins[j, i] += 1 - share
    assert win_shares(wins) == pytest.approx([golden["average_win_rate", name] for name in names], abs=1e-12)
    expected = centred(np.log([golden["bradley_terry", name] for name in names]).tolist())
    assert centred(bradley_terry(wins, 1e-6).tolist()) == pytest.approx(expected, abs=1e-6)

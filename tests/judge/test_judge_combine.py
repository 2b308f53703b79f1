"""Many ballots as one: by hand, exact where tied, and the same whatever ids are called."""

from collections.abc import Mapping
from math import sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strop.judge.combine import Ballot, combine, reliability
from strop.judge.settings import Combination, Mode

NAMES = ("a", "b", "c", "d", "e")
CASES: list[tuple[Combination, Mode]] = [
    ("mean", "listwise"), ("borda", "listwise"), ("kemeny", "listwise"), ("mean", "pairwise"),
    ("mean", "pointwise"), ("mean", "logprob"),
]  # fmt: skip

tenths = st.integers(0, 10).map(lambda n: n / 10)
whole = st.lists(st.fixed_dictionaries(dict.fromkeys(NAMES, tenths)), min_size=1, max_size=4)
pieces = st.lists(st.dictionaries(st.sampled_from(NAMES), tenths, min_size=1), min_size=0, max_size=5)
renamings = st.permutations(NAMES).map(lambda new: dict(zip(NAMES, new, strict=True)))


def ballots(*scores: Mapping[str, float]) -> list[Ballot]:
    return [Ballot(scores=one) for one in scores]


def test_mean_by_hand() -> None:
    found = combine(ballots({"a": 0.2, "b": 0.3}, {"b": 0.3, "a": 0.4}), "mean", "listwise")
    # As binary numbers 0.2 and 0.4 average to 0.30000000000000004.
    assert found.scores == {"a": 0.3, "b": 0.3}
    assert found.method == "listwise mean"
    assert found.reliability == 0  # a below b, then above
    assert found.noise == pytest.approx(sqrt((2 * 0.1**2 + 0) / 2 / 2))


def test_borda_and_kemeny_by_hand() -> None:
    three = ballots({"a": 0.9, "b": 0.5, "c": 0.1}, {"a": 0.2, "b": 0.2, "c": 0.9})
    borda = combine(three, "borda", "listwise")
    assert borda.scores == {"a": 0.625, "b": 0.375, "c": 0.5}
    kemeny = combine(three, "kemeny", "listwise")
    # a before b; c once before and once after both: orders c a b, a c b and a b c are all optimal.
    assert kemeny.scores == pytest.approx({"a": 5 / 6, "b": 1 / 6, "c": 1 / 2})
    assert (borda.method, kemeny.method) == ("listwise Borda", "listwise Kemeny")
    # Shares below: a 1 and .25, b .5 and .25, c 0 and 1.
    assert borda.noise == kemeny.noise == pytest.approx(sqrt((0.75**2 + 0.25**2 + 1) / 2 / 3 / 2))


def test_pairwise_by_hand() -> None:
    found = combine(
        ballots(
            {"a": 0.9, "b": 0.1}, {"b": 0.8, "a": 0.3},
            {"a": 0.6, "c": 0.5}, {"c": 0.1, "a": 0.2},
            {"b": 0.4, "c": 0.4},
        ),
        "mean",
        "pairwise",
    )  # fmt: skip
    assert found.scores == {"a": 0.75, "b": 0.5, "c": 0.25}
    assert found.reliability == 0.5
    # Within pairs: a and b 1 and 0 each, the rest alike; five ballots show a 4 times, b and c 3 times.
    assert found.noise == pytest.approx(sqrt((0.5 + 0.5 + 0 + 0) / 4 * (1 / 4 + 1 / 3 + 1 / 3) / 3))


def test_subsets_by_plackett_luce() -> None:
    chain = ballots({"a": 0.9, "b": 0.5}, {"b": 0.9, "c": 0.5}, {"c": 0.9, "d": 0.5}, {"d": 0.1, "a": 0.9})
    found = combine(chain, "mean", "listwise")
    assert sorted(found.scores, key=found.scores.__getitem__) == ["d", "c", "b", "a"]
    assert found.scores["a"] + found.scores["d"] == pytest.approx(1)
    assert (found.reliability, found.noise) == (None, None)
    assert found.method == "listwise subsets Plackett-Luce"


def test_in_subsets_the_mean_of_mirrored_orders_counts() -> None:
    # The first shown gains 0.4; only the mean of both orders says that a is better.
    first = ballots({"a": 0.9, "b": 0.4}, {"b": 0.8, "a": 0.5}, {"b": 0.5, "c": 0.5})
    assert combine(first, "mean", "listwise").scores["a"] > 0.6
    by_rank = combine(first, "borda", "listwise").scores
    assert by_rank["a"] == by_rank["b"] == by_rank["c"]


@pytest.mark.parametrize("mode", ["pointwise", "logprob"])
def test_singles_are_averaged(mode: Mode) -> None:
    found = combine(ballots({"a": 0.2}, {"b": 0.5}, {"a": 0.4}), "mean", mode)
    assert found.scores == {"a": 0.3, "b": 0.5}
    assert found.reliability is None
    assert found.noise == pytest.approx(sqrt(0.02 * (1 / 2 + 1) / 2))
    assert found.method == f"{mode} mean"


@pytest.mark.parametrize(("combination", "mode"), CASES)
def test_no_ballot_and_one_id(combination: Combination, mode: Mode) -> None:
    nothing = combine([], combination, mode)
    assert (nothing.scores, nothing.reliability, nothing.noise) == ({}, None, None)
    alone = combine(ballots({"a": 0.5}, {"a": 0.5}), combination, mode)
    assert (alone.scores, alone.reliability, alone.noise) == ({"a": 0.5}, None, 0)


@pytest.mark.parametrize(("combination", "mode"), CASES)
@pytest.mark.parametrize("score", [0.7, 0.1, 1 / 3])
def test_ballots_that_say_the_same_of_all_leave_exact_ties(
    combination: Combination, mode: Mode, score: float
) -> None:
    found = combine(ballots(*[dict.fromkeys(NAMES, score)] * 3), combination, mode)
    assert len(set(found.scores.values())) == 1
    assert found.noise == 0
    assert found.reliability == 1
    if found.method.endswith(" mean"):
        assert set(found.scores.values()) == {score}


def test_ties_across_subsets_are_exact() -> None:
    level = ballots({"a": 0.7, "b": 0.7, "c": 0.7}, {"c": 0.2, "d": 0.2, "e": 0.2}, {"e": 0.1, "a": 0.1})
    assert set(combine(level, "mean", "listwise").scores.values()) == {0.5}


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        ({"a": 0.9, "b": 0.5, "c": 0.1}, 1.0),
        ({"c": 0.9, "b": 0.5, "a": 0.1}, 0.0),
        ({"a": 0.8, "b": 0.7, "c": 0.7}, 2.5 / 3),
        ({"a": 0.5, "b": 0.5, "c": 0.5}, 0.5),
        ({"a": 0.9, "b": 0.1, "c": 0.5}, 2 / 3),
        ({"a": 0.9, "c": 0.5}, 1.0),
        ({"a": 0.9}, None),
    ],
)
def test_reliability_by_hand(second: Mapping[str, float], expected: float | None) -> None:
    assert reliability(ballots({"b": 0.5, "a": 0.8, "c": 0.2}, second)) == expected


@given(pieces)
def test_reliability_as_counted_over_ballots(scores: list[dict[str, float]]) -> None:
    alike: list[float] = []
    for i, one in enumerate(scores):
        for other in scores[:i]:
            shared = [name for name in NAMES if name in one and name in other]
            for k, first in enumerate(shared):
                for second in shared[:k]:
                    signs = [
                        (ballot[first] > ballot[second]) - (ballot[first] < ballot[second])
                        for ballot in (one, other)
                    ]
                    alike.append(1 - abs(signs[0] - signs[1]) / 2)
    expected = sum(alike) / len(alike) if alike else None
    assert reliability(ballots(*scores)) == (None if expected is None else pytest.approx(expected))


@given(pieces | whole, renamings, st.sampled_from(CASES), st.randoms(use_true_random=False))
def test_names_and_order_change_nothing(
    scores: list[dict[str, float]], new: dict[str, str], case: tuple[Combination, Mode], random: object
) -> None:
    found = combine(ballots(*scores), *case)
    renamed = combine(ballots(*({new[n]: s for n, s in one.items()} for one in scores)), *case)
    assert renamed.scores == {new[name]: score for name, score in found.scores.items()}
    assert (renamed.reliability, renamed.noise) == (found.reliability, found.noise)

    other = [dict(reversed(one.items())) for one in scores]
    random.shuffle(other)  # type: ignore[attr-defined]
    moved = combine(ballots(*other), *case)
    exact = found.method != "listwise subsets Plackett-Luce"
    assert moved.scores == (found.scores if exact else pytest.approx(found.scores, abs=1e-8))
    assert (moved.reliability, moved.noise) == (found.reliability, found.noise)


@given(pieces | whole, st.sampled_from(CASES))
def test_scores_are_of_all_ids_shown_and_between_0_and_1(
    scores: list[dict[str, float]], case: tuple[Combination, Mode]
) -> None:
    found = combine(ballots(*scores), *case)
    assert set(found.scores) == {name for one in scores for name in one}
    assert all(0 <= score <= 1 for score in found.scores.values())
    assert found.noise is None or 0 <= found.noise <= 1


@given(whole)
def test_an_order_that_all_ballots_share_is_kept(scores: list[dict[str, float]]) -> None:
    ranks = [0.9, 0.7, 0.5, 0.3, 0.1]
    same = [dict(zip(NAMES, sorted(one.values(), reverse=True), strict=True)) for one in scores]
    clear = ballots(*same, dict(zip(NAMES, ranks, strict=True)))
    for combination in ("mean", "borda", "kemeny"):
        found = list(combine(clear, combination, "listwise").scores.values())
        assert found == sorted(found, reverse=True)
        assert len(set(found)) == len(found)

"""Agreement inside groups against hand counts, brute force and scipy's tau-b."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, kendalltau

from strop.errors import InputError
from strop.stats.agreement import (
    RatedGroup,
    agreement_difference,
    kendall_tau,
    mean_kendall_tau,
    pairwise_agreement,
)

levels = st.integers(0, 3).map(float)
rated = st.lists(st.tuples(levels, levels), max_size=8).map(
    lambda pairs: RatedGroup(scores=[s for s, _ in pairs], truths=[t for _, t in pairs])
)


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def group(scores: list[float | None], truths: list[float | None]) -> RatedGroup:
    return RatedGroup(scores=scores, truths=truths)


def test_pairs_are_counted_within_groups_and_ties_are_half() -> None:
    found = pairwise_agreement(
        [
            group([0.9, 0.1, 0.9], [1, 0, 0]),  # right, tie
            group([0.2, 0.8], [1, 0]),  # wrong
            group([0.5, 0.6], [1, 1]),  # truth says nothing
        ],
        rng(),
    )
    assert (found.estimate, found.n, found.clusters, found.excluded) == (1.5 / 3, 3, 2, 0)


def test_scores_of_different_groups_are_never_compared() -> None:
    low, high = group([0.1, 0.2], [0, 1]), group([0.8, 0.9], [0, 1])
    assert pairwise_agreement([low, high], rng()).estimate == 1


def test_trajectories_without_score_or_truth_are_excluded_and_counted() -> None:
    found = pairwise_agreement(
        [group([0.9, None, 0.1, 0.5], [1, 0, 0, None]), group([0.1, 0.9], [1, 0])], rng()
    )
    assert (found.estimate, found.n, found.excluded) == (0.5, 2, 2)


def test_a_constant_score_is_at_chance_whatever_the_truth() -> None:
    groups = [group([0.5] * 4, [1, 0, 0, 1]), group([0.5] * 3, [0, 0, 1])]
    found = pairwise_agreement(groups, rng())
    peer = binomtest(1, 2).proportion_ci(method="wilson")
    assert (found.estimate, found.n) == (0.5, 6)
    assert (found.low, found.high) == (pytest.approx(peer.low), pytest.approx(peer.high))


def test_perfect_agreement_is_not_reported_as_certain() -> None:
    found = pairwise_agreement([group([0.1, 0.9], [0, 1])] * 20, rng())
    peer = binomtest(20, 20).proportion_ci(method="wilson")
    assert (found.estimate, found.low, found.high) == (1, pytest.approx(peer.low), 1)


@pytest.mark.parametrize("groups", [[], [group([0.5], [1])], [group([], [])], [group([0.5, 0.4], [1, 1])]])
def test_no_pair_of_different_truth_is_no_number(groups: list[RatedGroup]) -> None:
    found = pairwise_agreement(groups, rng())
    assert (found.estimate, found.n, found.method) == (None, 0, "none: no observations")


@given(st.lists(rated, max_size=5))
def test_agreement_is_the_brute_force_share(groups: list[RatedGroup]) -> None:
    outcomes = [
        0.5 if si == sj else float((si > sj) == (ti > tj))
        for g in groups
        for i, (si, ti) in enumerate(zip(g.scores, g.truths, strict=True))
        for sj, tj in list(zip(g.scores, g.truths, strict=True))[:i]
        if ti != tj and si is not None and sj is not None and ti is not None and tj is not None
    ]
    found = pairwise_agreement(groups, rng(), resamples=20)
    assert found.n == len(outcomes)
    if found.estimate is not None:
        assert found.estimate == pytest.approx(np.mean(outcomes))


@given(rated)
def test_tau_is_scipys(g: RatedGroup) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        peer = kendalltau(g.scores, g.truths).statistic
    found = kendall_tau(g)
    assert (found is None) == bool(np.isnan(peer))
    if found is not None:
        assert found == pytest.approx(peer)


def test_tau_by_hand() -> None:
    # Six pairs: 4 in order, 1 not, 1 tied in score; 5 untied in score, 6 in truth.
    assert kendall_tau(group([1, 2, 2, 0.5], [2, 3, 4, 0])) == pytest.approx(5 / np.sqrt(5 * 6))
    assert kendall_tau(group([1, 2], [2, 1])) == -1


def test_mean_tau_is_over_groups_that_have_one() -> None:
    groups = [group([1, 2], [1, 2]), group([1, 2], [2, 1]), group([1, 2], [1, 2]), group([1, 1], [1, 2])]
    found = mean_kendall_tau(groups, rng())
    assert found.estimate == pytest.approx(1 / 3)
    assert (found.n, found.clusters, found.excluded) == (3, 3, 1)
    assert found.low == pytest.approx(-1)
    assert found.high == pytest.approx(1)


def test_mean_tau_of_unanimous_groups_has_a_bound() -> None:
    found = mean_kendall_tau([group([1, 2], [1, 2])] * 10, rng())
    peer = binomtest(10, 10).proportion_ci(method="wilson")
    assert (found.estimate, found.low) == (1, pytest.approx(2 * peer.low - 1))


def test_lists_of_different_length_are_refused() -> None:
    with pytest.raises(InputError, match="1 scores but 2 truths"):
        pairwise_agreement([group([1], [1, 0])], rng())


def test_a_difference_is_counted_pair_by_pair() -> None:
    ours = [group([0.9, 0.1, 0.9], [1, 0, 0]), group([0.1, 0.9], [0, 1])]  # right, tie; right
    theirs = [group([1, 2, 3], [1, 0, 0]), group([5, 5], [0, 1])]  # wrong, wrong; tie
    found = agreement_difference(ours, theirs, rng())
    assert (found.estimate, found.n, found.clusters) == ((2.5 - 0.5) / 3, 3, 2)


@given(st.lists(rated, max_size=5))
def test_a_rating_does_not_differ_from_itself(groups: list[RatedGroup]) -> None:
    assert agreement_difference(groups, groups, rng(), 10).estimate in (None, 0)


def test_only_what_both_score_is_compared() -> None:
    truths: list[float | None] = [1, 0, 0]
    ours = [group([0.9, 0.1, None], truths), group([0.9, 0.1], [1, 0])]
    theirs = [group([None, 2, 3], truths), group([1, 2], [1, 0])]
    found = agreement_difference([*ours, ours[1]], [*theirs, theirs[1]], rng())
    assert (found.estimate, found.n, found.excluded) == (1, 2, 2)


def test_a_difference_of_other_groups_is_refused() -> None:
    one, other = group([0.9, 0.1], [1, 0]), group([0.9, 0.1], [0, 1])
    with pytest.raises(InputError, match="different trajectories"):
        agreement_difference([one], [other], rng())
    with pytest.raises(InputError, match="1 groups but 0"):
        agreement_difference([one], [], rng())

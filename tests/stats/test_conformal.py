"""Conformal thresholds: order statistics by hand, and the promise by simulation."""

import numpy as np
import pytest
from scipy.stats import binomtest

from strop.errors import InputError
from strop.stats.conformal import lower_threshold


@pytest.mark.parametrize(
    ("n", "rate", "kth"), [(19, 0.05, 1), (39, 0.05, 2), (100, 0.05, 5), (9, 0.1, 1), (10, 0.25, 2)]
)
def test_one_score_a_cluster_gives_the_kth_lowest(n, rate, kth):
    scores = np.random.default_rng(0).permutation(np.arange(1.0, n + 1))
    assert lower_threshold(scores, range(n), rate).value == kth


def test_too_few_promise_nothing():
    found = lower_threshold(np.arange(18.0), range(18), 0.05)
    assert (found.value, found.low, found.high) == (-np.inf, 0.0, 0.0)
    assert lower_threshold([], [], 0.05).value == -np.inf


def test_many_scores_of_one_cluster_are_no_more_than_one_cluster():
    scores = np.arange(1000.0)
    assert lower_threshold(scores, [i % 10 for i in range(1000)], 0.05).value == -np.inf


def test_clusters_by_hand():
    # Three clusters of mass 1/4: {1, 5}, {2}, {9}. From above 9 has 1/4, 5 has 1/8, 2 has 1/4: 5/8 ≥ 1/2.
    assert lower_threshold([1, 5, 2, 9], ["a", "a", "b", "c"], 0.5).value == 2


def test_the_range_is_that_of_the_order_statistic():
    # The 5th lowest of 100 uniform numbers is Beta(5, 96).
    found = lower_threshold(np.arange(100.0), range(100), 0.05)
    drawn = np.sort(np.random.default_rng(0).random((20000, 100)), axis=1)[:, 4]
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(drawn, [0.025, 0.975])), abs=2e-3)


@pytest.mark.parametrize("ties", [False, True])
def test_the_promise_holds_over_fresh_clusters(ties):
    """Scores share their cluster's level and clusters differ in size: a threshold that took scores for
    independent ones would break it. One score of a fresh cluster is held with chance at most 10 %."""
    rng = np.random.default_rng(1)
    held = 0
    for _ in range(4000):
        sizes = rng.integers(1, 6, size=31)
        levels = rng.normal(size=31) - 0.4 * sizes
        scores = [level + 0.3 * rng.normal(size=n) for level, n in zip(levels, sizes, strict=True)]
        scores = [np.round(s) if ties else s for s in scores]
        known = np.concatenate(scores[:-1])
        clusters = np.repeat(np.arange(30), sizes[:-1])
        held += bool(rng.choice(scores[-1]) < lower_threshold(known, clusters.tolist(), 0.1).value)
    interval = binomtest(held, 4000).proportion_ci(0.999)
    assert interval.low <= 0.1
    assert ties or interval.high >= 0.1 - 1 / 31


@pytest.mark.parametrize("rate", [0.0, 1.0, -0.1])
def test_no_such_rate(rate):
    with pytest.raises(InputError, match="false-hold rate"):
        lower_threshold([1.0], ["a"], rate)

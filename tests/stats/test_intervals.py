"""Intervals against scipy, hand arithmetic and simulated coverage."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, bootstrap

from strop.errors import InputError
from strop.stats.intervals import Estimate, cluster_bootstrap, cluster_mean, cluster_ratio, undefined, wilson


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def bounds(estimate: Estimate) -> tuple[float, float]:
    assert estimate.low is not None
    assert estimate.high is not None
    return estimate.low, estimate.high


@given(st.integers(1, 500), st.data(), st.sampled_from([0.8, 0.95, 0.99]))
def test_wilson_is_scipys(n: int, data: st.DataObject, level: float) -> None:
    successes = data.draw(st.integers(0, n))
    peer = binomtest(successes, n).proportion_ci(level, method="wilson")
    assert bounds(wilson(successes, n, level)) == pytest.approx((peer.low, peer.high), abs=1e-12)


def test_wilson_of_half_of_ten_by_hand() -> None:
    # z = 1.959964: centre (0.5 + z²/20) / (1 + z²/10) = 0.5, half width 0.2634
    found = wilson(5, 10)
    assert (found.estimate, found.n, found.method) == (0.5, 10, "Wilson 95%")
    assert bounds(found) == pytest.approx((0.23659, 0.76341), abs=1e-5)


@pytest.mark.parametrize(("successes", "n"), [(0, 7), (7, 7)])
def test_wilson_stays_inside_and_holds_the_estimate(successes: int, n: int) -> None:
    low, high = bounds(wilson(successes, n))
    assert 0 <= low <= successes / n <= high <= 1
    assert low < high


def test_wilson_of_nothing_is_no_number() -> None:
    assert wilson(0, 0) == undefined("no observations")
    assert wilson(0, 0).estimate is None


@pytest.mark.parametrize(
    ("successes", "n", "level"), [(-1, 3, 0.95), (4, 3, 0.95), (1, 3, 0.0), (1, 3, 95.0)]
)
def test_wilson_refuses_impossible_counts_and_levels(successes: int, n: int, level: float) -> None:
    with pytest.raises(InputError):
        wilson(successes, n, level)


def test_json_names_what_every_number_must_carry() -> None:
    found = wilson(1, 2).to_json()
    assert list(found) == ["estimate", "low", "high", "n", "method", "excluded"]
    assert undefined("why", n=3, clusters=1).to_json() == {
        "estimate": None,
        "low": None,
        "high": None,
        "n": 3,
        "method": "none: why",
        "excluded": 0,
        "clusters": 1,
    }


def test_cluster_mean_weighs_observations_and_counts_both() -> None:
    found = cluster_mean([1, 1, 1, 0], ["a", "a", "a", "b"], rng())
    assert (found.estimate, found.n, found.clusters) == (0.75, 4, 2)
    # Resamples are aa, ab, ba, bb: means 1, 0.75, 0.75, 0, so the middle 95 % runs from 0 to 1.
    assert bounds(found) == (0.0, 1.0)


def test_one_observation_a_cluster_is_scipys_percentile_bootstrap() -> None:
    values = rng(1).normal(size=60)
    found = cluster_mean(values, range(60), rng(2), resamples=20_000)
    peer = bootstrap((values,), np.mean, n_resamples=20_000, method="percentile", random_state=rng(3))
    ci = peer.confidence_interval
    assert bounds(found) == pytest.approx((ci.low, ci.high), abs=0.01)


def test_copies_of_an_observation_add_no_certainty() -> None:
    values = rng(1).normal(size=40)
    once = bounds(cluster_mean(values, range(40), rng(), 5000))
    tenfold = bounds(cluster_mean(np.repeat(values, 10), np.repeat(np.arange(40), 10).tolist(), rng(), 5000))
    assert tenfold == pytest.approx(once, abs=1e-12)


def test_generic_bootstrap_of_the_mean_is_the_vectorised_one() -> None:
    values = rng(1).normal(size=50)
    clusters = [f"s{i % 13}" for i in range(50)]
    fast = cluster_mean(values, clusters, rng(5), 300)
    slow = cluster_bootstrap(clusters, lambda i: float(values[i].mean()), rng(5), 300)
    assert fast.estimate == pytest.approx(slow.estimate)
    assert bounds(fast) == pytest.approx(bounds(slow))
    assert (fast.n, fast.clusters) == (slow.n, slow.clusters) == (50, 13)


def test_a_resample_holds_whole_clusters() -> None:
    clusters = [0, 1, 0, 2, 1, 0]
    seen: list[np.ndarray] = []

    def statistic(index: np.ndarray) -> float:
        seen.append(index)
        return float(index[0])

    cluster_bootstrap(clusters, statistic, rng(), 50)
    assert seen[0].tolist() == [0, 1, 2, 3, 4, 5]
    for index in seen[1:]:
        times = np.bincount(index, minlength=6)
        assert times[0] == times[2] == times[5]
        assert times[1] == times[4]
        assert times[0] + times[1] + times[3] == 3


def test_the_same_generator_gives_the_same_interval_and_another_one_does_not() -> None:
    values = rng(1).normal(size=30)
    first, again, other = (cluster_mean(values, range(30), rng(s), 100) for s in (7, 7, 8))
    assert first == again
    assert first != other


def test_coverage_of_clustered_data_is_near_its_level_and_ignoring_clusters_is_not() -> None:
    world = rng(11)
    covered = naive = 0
    for _ in range(200):
        shift = world.normal(size=40)
        values = np.repeat(shift, 5) + 0.3 * world.normal(size=200)
        low, high = bounds(cluster_mean(values, np.repeat(np.arange(40), 5).tolist(), world, 300))
        covered += low <= 0 <= high
        low, high = bounds(cluster_mean(values, range(200), world, 300))
        naive += low <= 0 <= high
    assert 0.89 <= covered / 200 <= 0.99
    assert naive / 200 < 0.75


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_unanimous_clusters_get_wilsons_bound_with_clusters_as_n(share: float) -> None:
    found = cluster_mean([share] * 60, [i // 3 for i in range(60)], rng())
    peer = binomtest(int(share * 20), 20).proportion_ci(0.95, method="wilson")
    assert bounds(found) == pytest.approx((peer.low, peer.high))
    assert "Wilson" in found.method


def test_equal_clusters_are_not_reported_as_certain() -> None:
    found = cluster_mean([0.5] * 8, range(8), rng())
    peer = binomtest(4, 8).proportion_ci(0.95, method="wilson")
    assert found.estimate == 0.5
    assert bounds(found) == pytest.approx((peer.low, peer.high))


def test_equal_values_that_are_no_share_get_no_number() -> None:
    found = cluster_mean([7.0, 7.0], ["a", "b"], rng())
    assert (found.estimate, found.method, found.n) == (None, "none: clusters do not differ", 2)


@pytest.mark.parametrize(
    ("values", "clusters", "why"),
    [([], [], "no observations"), ([1.0], ["a"], "one cluster"), ([1.0, 0.0], ["a", "a"], "one cluster")],
)
def test_too_little_data_is_no_number_and_says_why(
    values: list[float], clusters: list[str], why: str
) -> None:
    found = cluster_mean(values, clusters, rng())
    assert (found.estimate, found.low, found.high, found.n) == (None, None, None, len(values))
    assert why in found.method


@pytest.mark.parametrize(
    ("values", "clusters", "line"),
    [
        ([np.nan, 1], "ab", "not finite"),
        ([[1.0]], "a", "shape"),
        ([1.0, 2.0], "a", "2 values but 1 clusters"),
    ],
)
def test_values_that_would_poison_a_mean_are_refused(values: list[float], clusters: str, line: str) -> None:
    with pytest.raises(InputError, match=line):
        cluster_mean(values, list(clusters), rng())


def test_a_ratio_is_of_sums_and_empty_clusters_say_nothing() -> None:
    found = cluster_ratio([1, 3, 0], [2, 4, 0], rng())
    assert (found.estimate, found.n, found.clusters) == (4 / 6, 6, 2)
    assert bounds(found) == (0.5, 0.75)


def test_resamples_that_define_nothing_are_counted_and_too_many_give_no_number() -> None:
    rare = [0] * 30 + [1]

    def needs_the_rare(index: np.ndarray) -> float | None:
        return float(index.mean()) if 30 in index else None

    some = cluster_bootstrap(range(31), needs_the_rare, rng(), 400)
    lost = int(some.method.split(", ")[2].split()[0])
    # The rare one is missed with probability (30/31)^31 = 0.362.
    assert 0.29 < lost / 400 < 0.44
    assert some.method.startswith(f"cluster bootstrap 95%, {400 - lost} resamples")

    def needs_two(index: np.ndarray) -> float | None:
        return float(index.mean()) if len(index) == len(rare) and len(set(index.tolist())) == 31 else None

    none = cluster_bootstrap(range(31), needs_two, rng(), 100)
    assert (none.estimate, none.method) == (None, "none: most resamples do not define it")
    never = cluster_bootstrap(range(3), lambda _: None, rng(), 10)
    assert (never.estimate, never.method) == (None, "none: the data do not define it")

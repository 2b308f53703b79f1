"""The paired difference against hand arithmetic, a brute-force bootstrap and simulated coverage."""

import numpy as np
import pytest
from scipy.stats import binomtest

from strop.errors import InputError
from strop.stats.compare import paired_difference


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_difference_is_the_mean_over_shared_scenarios() -> None:
    before = {"a": [0, 1], "b": [0], "c": [1, 1, 1], "only before": [1]}
    after = {"a": [1, 1], "b": [1], "c": [0, 1, 0.5], "only after": [0], "empty": []}
    found = paired_difference(before, after, rng())
    assert found.estimate == pytest.approx((0.5 + 1 - 0.5) / 3)
    assert (found.n, found.clusters, found.excluded) == (3, 3, 3)
    assert (found.low, found.high) == (pytest.approx(-0.5), pytest.approx(1))


def test_swapping_sides_flips_the_sign() -> None:
    before, after = {"a": [0], "b": [1], "c": [0]}, {"a": [1], "b": [1], "c": [1]}
    forth, back = paired_difference(before, after, rng()), paired_difference(after, before, rng())
    assert forth.estimate == -(back.estimate or 0) == pytest.approx(2 / 3)


def test_pairing_takes_out_what_scenarios_share() -> None:
    easy = rng(1).uniform(0.1, 0.9, size=100)
    before = {f"s{i}": [x] for i, x in enumerate(easy)}
    after = {f"s{i}": [x + 0.05 + 0.01 * (i % 2)] for i, x in enumerate(easy)}
    found = paired_difference(before, after, rng())
    assert found.estimate == pytest.approx(0.055)
    assert found.low is not None
    assert found.high is not None
    assert 0.053 < found.low < found.high < 0.057


def test_coverage_is_near_its_level() -> None:
    world, covered = rng(5), 0
    for _ in range(150):
        before = {str(i): [float(world.random() < 0.5)] for i in range(60)}
        after = {str(i): [float(world.random() < 0.7)] for i in range(60)}
        found = paired_difference(before, after, world, 300)
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= 0.2 <= found.high
    assert 0.89 <= covered / 150 <= 0.99


@pytest.mark.parametrize(("was", "now", "moved"), [(0.0, 1.0, 1), (1.0, 0.0, -1), (1.0, 1.0, 0)])
def test_scenarios_that_all_move_alike_still_have_an_interval(was: float, now: float, moved: int) -> None:
    found = paired_difference({str(i): [was] for i in range(20)}, {str(i): [now] for i in range(20)}, rng())
    # Wilson's upper bound for 0 of 20 rises and for 0 of 20 falls.
    bound = float(binomtest(0, 20).proportion_ci(method="wilson").high)
    expected = {1: (1 - 2 * bound, 1), -1: (-1, 2 * bound - 1), 0: (-bound, bound)}[moved]
    assert found.estimate == moved
    assert (found.low, found.high) == pytest.approx(expected)


@pytest.mark.parametrize("names", ["", "a"])
def test_fewer_than_two_scenarios_are_no_number(names: str) -> None:
    found = paired_difference({n: [1.0] for n in names}, {n: [0.0] for n in names}, rng())
    assert (found.estimate, found.n) == (None, len(names))


def test_an_equal_move_by_a_fraction_says_nothing_of_its_spread() -> None:
    found = paired_difference({"a": [0.25], "b": [0.5]}, {"a": [0.5], "b": [0.75]}, rng())
    assert (found.estimate, found.method) == (None, "none: scenarios do not differ")


def test_outcomes_that_are_no_shares_are_refused() -> None:
    with pytest.raises(InputError, match="outside"):
        paired_difference({"a": [2.0]}, {"a": [0.0]}, rng())
    with pytest.raises(InputError, match="scenario a: a value is not finite"):
        paired_difference({"a": [np.nan]}, {"a": [0.0]}, rng())

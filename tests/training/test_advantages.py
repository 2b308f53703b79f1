"""Known answers of peers (verl, TRL, prime-rl, measured there) and the failure cases they met."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strop.errors import InputError
from strop.training.advantages import advantages

VERL, TRL = 1e-6, 1e-4
EIGHT_RANKS = [k / 7 for k in range(7, -1, -1)]


@pytest.mark.parametrize(
    ("scores", "eps", "expected"),
    [
        ([1, 0, 0, 1], VERL, [0.866024, -0.866024, -0.866024, 0.866024]),
        ([1, 0, 0, 1], TRL, [0.865875, -0.865875, -0.865875, 0.865875]),
        ([1, 0, 0, 0], VERL, [1.499997, -0.499999, -0.499999, -0.499999]),
        ([1, 0, 0, 0], TRL, [1.4997, -0.4999, -0.4999, -0.4999]),
        ([0.9, 0.7, 0.4, 0.1], VERL, [1.071425, 0.499999, -0.357142, -1.214282]),
        ([0.9, 0.7, 0.4, 0.1], TRL, [1.071123, 0.499857, -0.357041, -1.213939]),
        (
            EIGHT_RANKS,
            VERL,
            [1.428865, 1.020618, 0.612371, 0.204123, -0.204123, -0.612371, -1.020618, -1.428865],
        ),
        ([1, 0.2], VERL, [0.707106, -0.707106]),
    ],
)
def test_std_gives_the_peers_numbers(scores: list[float], eps: float, expected: list[float]) -> None:
    got = advantages(scores, scale="std", eps=eps).values
    np.testing.assert_allclose(got, expected, atol=1.6e-6 if eps == VERL else 4e-5)


@pytest.mark.parametrize(
    ("scores", "population"),
    [([1, 0, 0, 1], [1, -1, -1, 1]), ([1, 0, 0, 0], [1.732051, -0.577350, -0.577350, -0.577350])],
)
def test_population_convention_is_a_known_factor_away(scores: list[float], population: list[float]) -> None:
    n = len(scores)
    np.testing.assert_allclose(advantages(scores).values * math.sqrt(n / (n - 1)), population, atol=1e-6)


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([1, 0, 0, 1], [0.5, -0.5, -0.5, 0.5]),
        ([1, 0, 0, 0], [0.75, -0.25, -0.25, -0.25]),
        ([0.9, 0.7, 0.4, 0.1], [0.375, 0.175, -0.125, -0.425]),
    ],
)
def test_none_only_centres(scores: list[float], expected: list[float]) -> None:
    np.testing.assert_allclose(advantages(scores, scale="none").values, expected, atol=1e-12)


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([1, 0, 0, 1], [0.666667, -0.666667, -0.666667, 0.666667]),
        ([1, 0, 0, 0], [1, -0.333333, -0.333333, -0.333333]),
        ([0.9, 0.7, 0.4, 0.1], [0.5, 0.233333, -0.166667, -0.566667]),
        # 8 / 7 of ±1/2, ±5/14, ±3/14, ±1/14
        (EIGHT_RANKS, [4 / 7, 20 / 49, 12 / 49, 4 / 49, -4 / 49, -12 / 49, -20 / 49, -4 / 7]),
    ],
)
def test_leave_one_out_gives_the_peers_rloo(scores: list[float], expected: list[float]) -> None:
    got = advantages(scores, scale="none", leave_one_out=True).values
    np.testing.assert_allclose(got, expected, atol=1e-6)


def test_leave_one_out_is_the_mean_of_the_others_and_leaves_out_the_unscored() -> None:
    got = advantages([0.9, None, 0.2, 0.4], scale="none", leave_one_out=True)
    np.testing.assert_allclose(got.values, [0.9 - 0.3, 0, 0.2 - 0.65, 0.4 - 0.55], atol=1e-12)
    assert advantages([0.5, 0.5], leave_one_out=True).values.tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("scores", "expected"),
    [([0, 0.06, 0.06, 0.06], [-2, 2 / 3, 2 / 3, 2 / 3]), ([1, 0, 0, 0], [2, -2 / 3, -2 / 3, -2 / 3])],
)
def test_t30_leave_one_out_by_the_spread_stays_bounded(scores: list[float], expected: list[float]) -> None:
    """By the spread of the others, peers give -3047 and ±1e6: the others agree, their spread is rounding."""
    np.testing.assert_allclose(advantages(scores, leave_one_out=True).values, expected, atol=1e-12)


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        (
            [0.9, 0.8, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0],
            [0.5, 5 / 14, 3 / 14, 1 / 14, -1 / 14, -3 / 14, -5 / 14, -0.5],
        ),
        ([0.2, 0.9, 0.2], [-0.25, 0.5, -0.25]),
        ([0.9, 0.2, 0.9, 0.1], [1 / 3, -1 / 6, 1 / 3, -0.5]),
    ],
)
def test_rank_is_centred_and_tie_averaged(scores: list[float], expected: list[float]) -> None:
    np.testing.assert_allclose(advantages(scores, scale="rank").values, expected, atol=1e-12)


@pytest.mark.parametrize("scale", ["std", "none", "rank"])
@pytest.mark.parametrize(
    "scores", [[1 / 3] * 7, [0.1] * 3, [0.7] * 3, [0.98] * 15, [0.5, 0.5 + 1e-7], [0.0, 0.0]]
)
def test_t29_a_tied_group_is_exactly_zero(scores: list[float], scale: str) -> None:
    got = advantages(scores, scale=scale)  # type: ignore[arg-type]
    assert got.dropped_reason == "tied"
    assert got.values.tolist() == [0.0] * len(scores)
    assert got.kept.all()


def test_t30_variance_is_two_pass() -> None:
    """A one-pass float32 variance gives -3047 here; by hand the leave-one-out twin is bounded by sqrt(3)."""
    got = advantages([0, 0.06, 0.06, 0.06]).values
    np.testing.assert_allclose(got, [-1.5, 0.5, 0.5, 0.5], atol=1e-12)
    shifted = advantages([1e6, 1e6 + 0.06, 1e6 + 0.06, 1e6 + 0.06]).values
    np.testing.assert_allclose(shifted, got, atol=1e-6)


def test_t31_low_variance_is_blown_up_without_a_floor_and_held_by_one() -> None:
    near_tie = [1, 1.00001]  # the peers' numbers are float32's, hence the tolerance
    np.testing.assert_allclose(advantages(near_tie, eps=VERL).values, [-0.6196, 0.6196], atol=2e-4)
    np.testing.assert_allclose(advantages(near_tie, eps=TRL).values, [-0.0467, 0.0467], atol=2e-4)
    held = advantages(near_tie, noise_floor=0.05).values
    np.testing.assert_allclose(held, [-1e-4, 1e-4], rtol=1e-6)


def test_the_floor_leaves_clear_groups_alone_and_shrinks_ranks_alike() -> None:
    clear = [0.9, 0.1]
    for scale in ("std", "rank"):
        plain = advantages(clear, scale=scale).values  # type: ignore[arg-type]
        floored = advantages(clear, scale=scale, noise_floor=0.05).values  # type: ignore[arg-type]
        np.testing.assert_array_equal(plain, floored)
    # std of (0.50, 0.51) is 0.01/sqrt(2); over a floor of 0.1/sqrt(2) a tenth of ±1/2 is left
    near = advantages([0.50, 0.51], scale="rank", noise_floor=0.1 / math.sqrt(2)).values
    np.testing.assert_allclose(near, [-0.05, 0.05], rtol=1e-9)


def test_x42_unscored_is_left_out_of_the_baseline() -> None:
    got = advantages([1, None, 0, 0, None, 1])
    np.testing.assert_allclose(got.values[[0, 2, 3, 5]], advantages([1, 0, 0, 1]).values)
    assert got.values[[1, 4]].tolist() == [0.0, 0.0]
    assert got.kept.tolist() == [True, False, True, True, False, True]
    assert got.dropped_reason is None


@pytest.mark.parametrize(
    ("scores", "reason"),
    [([], "unscored"), ([None, None], "unscored"), ([0.7], "singleton"), ([None, 0.7], "singleton")],
)
def test_nothing_to_compare_is_zero_with_a_reason(scores: list[float | None], reason: str) -> None:
    got = advantages(scores)
    assert got.dropped_reason == reason
    assert got.values.tolist() == [0.0] * len(scores)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_score_that_is_not_finite_is_refused(bad: float) -> None:
    with pytest.raises(InputError, match="not finite"):
        advantages([bad, 0.2, 0.3])


GRID = st.lists(st.integers(0, 20), min_size=2, max_size=12).map(lambda ks: [k / 20 for k in ks])


@given(GRID, st.floats(0.1, 10), st.floats(-5, 5))
def test_std_is_invariant_to_positive_affine_maps(scores: list[float], a: float, b: float) -> None:
    mapped = advantages([a * s + b for s in scores]).values
    np.testing.assert_allclose(mapped, advantages(scores).values, atol=1e-9)


@given(GRID)
def test_rank_is_invariant_to_increasing_maps(scores: list[float]) -> None:
    mapped = advantages([math.exp(3 * s) for s in scores], scale="rank").values
    np.testing.assert_array_equal(mapped, advantages(scores, scale="rank").values)


@given(GRID, st.sampled_from(["std", "none", "rank"]))
def test_advantages_sum_to_zero_and_are_bounded(scores: list[float], scale: str) -> None:
    got = advantages(scores, scale=scale).values  # type: ignore[arg-type]
    n = len(scores)
    assert abs(got.sum()) < 1e-9
    assert np.abs(got).max() <= (n - 1) / math.sqrt(n) + 1e-9
    alone = advantages(scores, scale=scale, leave_one_out=True).values  # type: ignore[arg-type]
    assert np.abs(alone).max() <= math.sqrt(n) + 1e-9


def test_t32_scores_a_thousandth_apart_stay_apart() -> None:
    """In bfloat16 0.871 and 0.872 are one number."""
    got = advantages([0.871, 0.872])
    assert got.dropped_reason is None
    np.testing.assert_allclose(got.values, [-math.sqrt(0.5), math.sqrt(0.5)])

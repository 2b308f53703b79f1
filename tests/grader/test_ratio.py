import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strop.errors import InputError
from strop.grader.ratio import (
    AGGREGATORS,
    aggregate,
    aggregate_of_ratios,
    centred,
    difference_of_aggregates,
    log_ratio,
    step_grade,
    trajectory_grade,
)

POLICY = [-1.0, -0.5, -4.0]
REFERENCE = [-2.0, -0.25, -3.0]


def test_the_log_ratio_is_policy_less_reference():
    assert log_ratio(POLICY, REFERENCE).tolist() == [1.0, -0.25, -1.0]


@given(st.lists(st.floats(-50, 0), max_size=20))
def test_a_model_against_itself_is_exactly_zero(logprobs):
    assert log_ratio(logprobs, logprobs).tolist() == [0.0] * len(logprobs)


def test_aggregators_by_hand():
    values = [3.0, -1.0, 0.5, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, -3.0]
    expected = {"sum": 13.5, "mean": 13.5 / 11, "min": -3.0, "max": 3.0, "last": -3.0, "bottom10": -2.0}
    assert {how: aggregate(values, how) for how in AGGREGATORS} == pytest.approx(expected)


def test_the_two_readings_differ_where_other_tokens_are_compared():
    # min of ratios is -1; min of policy is -4 (third token), min of reference -3 (third): -1 too.
    # max of ratios is 1; max of policy -0.5, of reference -0.25, so the difference is -0.25.
    assert aggregate_of_ratios(POLICY, REFERENCE, "max") == 1.0
    assert difference_of_aggregates(POLICY, REFERENCE, "max") == -0.25


@pytest.mark.parametrize("how", ["sum", "mean", "last"])
def test_the_two_readings_agree_where_the_aggregate_is_linear(how):
    ours = aggregate_of_ratios(POLICY, REFERENCE, how)
    assert difference_of_aggregates(POLICY, REFERENCE, how) == pytest.approx(ours)


def test_step_then_trajectory():
    first = step_grade(POLICY, REFERENCE)
    second = step_grade(POLICY, REFERENCE, "max", "difference-of-aggregates")
    assert (first, second) == (-0.25, -0.25)
    assert trajectory_grade([first, second, 1.0]) == 0.5
    assert trajectory_grade([first, second, 1.0], "min") == -0.25


def test_centring_removes_the_mean_under_the_policy():
    policy, reference = np.array([0.7, 0.2, 0.1]), np.array([0.3, 0.3, 0.4])
    ratios = np.log(policy / reference)
    kl = float((policy * ratios).sum())
    assert float((policy * centred(ratios, np.full(3, kl))).sum()) == pytest.approx(0.0, abs=1e-15)


@pytest.mark.parametrize("how", AGGREGATORS)
def test_nothing_measured_is_an_error_not_a_zero(how):
    with pytest.raises(InputError, match="no values"):
        aggregate([], how)


def test_bad_input_is_refused():
    with pytest.raises(InputError, match="same tokens"):
        log_ratio([0.0], [0.0, 0.0])
    with pytest.raises(InputError, match="finite"):
        log_ratio([float("nan")], [0.0])
    with pytest.raises(InputError, match="one KL"):
        centred([0.0], [0.0, 1.0])
    with pytest.raises(InputError, match="unknown aggregator"):
        aggregate([1.0], "median")

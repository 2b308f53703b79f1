"""Calibration and risk–coverage by hand and beside scikit-learn."""

import numpy as np
import pytest
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from strop.stats.calibration import expected_calibration_error, isotonic, platt
from strop.stats.columns import resampled
from strop.stats.risk import area, rejection_ratio, risks


@pytest.fixture
def drawn():
    rng = np.random.default_rng(0)
    scores = rng.normal(size=400).round(2)
    return scores, (rng.random(400) < 1 / (1 + np.exp(-2 * scores + 1))).astype(float)


def test_platt_is_logistic_regression_on_smoothed_targets(drawn):
    scores, labels = drawn
    n, positive = len(labels), labels.sum()
    high, low = (positive + 1) / (positive + 2), 1 / (n - positive + 2)
    # Each observation stands twice, as a success and a failure, weighted by its smoothed target.
    target = np.where(labels == 1, high, low)
    peer = LogisticRegression(C=1e10, tol=1e-10, max_iter=1000)
    peer.fit(
        np.concatenate([scores, scores])[:, None],
        np.repeat([1, 0], n),
        sample_weight=np.concatenate([target, 1 - target]),
    )
    at = np.linspace(-3, 3, 9)
    assert platt(scores, labels)(at) == pytest.approx(peer.predict_proba(at[:, None])[:, 1], abs=1e-4)


def test_platt_of_separated_classes_stays_inside():
    # Targets 3/4 and 1/4 are reached exactly.
    assert platt([0.0, 0.0, 1.0, 1.0], [0, 0, 1, 1])(np.array([0.0, 1.0])) == pytest.approx([0.25, 0.75])


def test_platt_of_equal_scores_is_the_smoothed_share():
    assert platt([2.0] * 4, [1, 1, 1, 0])(np.array([2.0])) == pytest.approx([(3 * 0.8 + 1 / 3) / 4], abs=1e-6)


def test_isotonic_as_scikit_learn(drawn):
    scores, labels = drawn
    peer = IsotonicRegression(out_of_bounds="clip").fit(scores, labels)
    at = np.linspace(-4, 4, 41)
    assert isotonic(scores, labels)(at) == pytest.approx(peer.predict(at))


def test_calibration_error_by_hand():
    # Two bins: 0.2 said and 1 of 2 came, 0.9 said and both came: (0.6 + 0.2) / 4.
    assert expected_calibration_error([0.2, 0.2, 0.9, 0.9], [0, 1, 1, 1], bins=2) == pytest.approx(0.2)
    assert expected_calibration_error([], []) is None


def test_risks_by_hand_ties_share():
    assert risks([3, 2, 2, 1], [0, 1, 0, 1]) == pytest.approx([0, 0.25, 1 / 3, 0.5])


def test_area_and_ratio_of_the_oracle_and_of_a_blind_score():
    failures = [0.0, 0.0, 1.0, 1.0]
    assert area([4, 3, 2, 1], failures) == pytest.approx((0 + 0 + 1 / 3 + 1 / 2) / 4)
    assert rejection_ratio([4, 3, 2, 1], failures) == pytest.approx(1)
    assert rejection_ratio([1, 1, 1, 1], failures) == pytest.approx(0)
    assert rejection_ratio([1, 2, 3, 4], failures) < 0
    assert rejection_ratio([1, 2], [0.0, 0.0]) is None
    assert area([], []) is None


def test_columns_are_resampled_together():
    draws = resampled(50, np.random.default_rng(0), 500)
    values = np.random.default_rng(1).random(50)
    same = draws.mean(values - values + 1e-9 * values, np.ones(50))
    assert same.high < 1e-8
    assert draws.mean(values, np.ones(50)).estimate == pytest.approx(values.mean())
    assert draws.share(values, 2 * values).estimate == pytest.approx(0.5)
    assert draws.share(values, np.zeros(50)).estimate is None
    assert resampled(1, np.random.default_rng(0)).mean([1.0], [1.0]).estimate is None
    assert resampled(0, np.random.default_rng(0)).mean([], []).estimate is None

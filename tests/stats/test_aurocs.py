import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from strop.errors import InputError
from strop.stats.aurocs import resampled_aurocs, weighted_auroc
from strop.stats.detection import auroc_estimate


@pytest.fixture
def rng():
    return np.random.default_rng(3)


def test_weights_are_repetitions(rng):
    labels = np.array([0, 1, 0, 1, 1, 0, 0, 1], dtype=float)
    scores = np.array([0, 0, 1, 1, 2, 2, 3, 3], dtype=float)
    weights = rng.integers(0, 4, size=(20, 8)).astype(float)
    weights[:, :2] += 1
    for row, ours in zip(weights, weighted_auroc(weights, labels, scores), strict=True):
        repeated = np.repeat(np.arange(8), row.astype(int))
        assert ours == pytest.approx(roc_auc_score(labels[repeated], scores[repeated]), abs=1e-12)


def test_a_class_without_weight_has_no_auroc():
    weights = np.array([[1.0, 0.0], [1.0, 1.0]])
    assert np.isnan(weighted_auroc(weights, np.array([1.0, 0.0]), np.array([2.0, 1.0]))).tolist() == [
        True,
        False,
    ]
    assert np.isnan(weighted_auroc(np.ones((2, 0)), np.array([]), np.array([]))).all()


def test_intervals_are_those_of_the_plain_bootstrap_up_to_its_noise(rng):
    labels = rng.integers(0, 2, 80).astype(float)
    scores = labels + rng.normal(0, 1.5, 80)
    clusters = [i // 2 for i in range(80)]
    ours = resampled_aurocs(labels, {"a": scores}, clusters, rng, 4000).estimate("a")
    plain = auroc_estimate(labels, scores, clusters, rng, 2000)
    assert ours.estimate == plain.estimate
    assert (ours.low, ours.high) == pytest.approx((plain.low, plain.high), abs=0.02)
    assert (ours.n, ours.clusters) == (80, 40)


def test_a_difference_is_narrower_than_two_intervals_when_scores_go_together(rng):
    labels = np.tile([0.0, 1.0], 40)
    scores = labels + rng.normal(0, 1.5, 80)
    both = resampled_aurocs(labels, {"a": scores, "b": scores + rng.normal(0, 0.1, 80)}, range(80), rng)
    width = both.estimate("a").high - both.estimate("a").low
    difference = both.difference("a", "b")
    assert difference.high - difference.low < width / 3
    assert difference.estimate == pytest.approx(both.points["a"] - both.points["b"])


def test_too_little_data_has_reasons(rng):
    assert "one class" in resampled_aurocs([1, 1], {"a": [1, 2]}, "xy", rng).estimate("a").method
    assert "one cluster" in resampled_aurocs([0, 1], {"a": [1, 2]}, "xx", rng).estimate("a").method
    assert resampled_aurocs([], {"a": []}, [], rng).difference("a", "a").estimate is None
    with pytest.raises(InputError, match="differ in length"):
        resampled_aurocs([0, 1], {"a": [1]}, "xy", rng)

"""AUROC and average precision against scikit-learn and brute force."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.metrics import average_precision_score, roc_auc_score

from strop.errors import InputError
from strop.stats.detection import auprc, auroc, auroc_estimate

labelled = st.integers(1, 30).flatmap(
    lambda n: st.tuples(
        arrays(np.int64, n, elements=st.integers(0, 1)), arrays(np.float64, n, elements=st.integers(-2, 2))
    )
)


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@given(labelled)
def test_auroc_is_the_share_of_ordered_pairs_and_scikit_learns(case: tuple[np.ndarray, np.ndarray]) -> None:
    labels, scores = case
    pos, neg = scores[labels == 1], scores[labels == 0]
    if len(pos) == 0 or len(neg) == 0:
        assert auroc(labels, scores) is None
        return
    pairs = [1.0 if p > q else 0.5 if p == q else 0.0 for p in pos for q in neg]
    assert auroc(labels, scores) == pytest.approx(float(np.mean(pairs)))
    assert auroc(labels, scores) == pytest.approx(roc_auc_score(labels, scores))


@given(labelled)
def test_average_precision_is_scikit_learns(case: tuple[np.ndarray, np.ndarray]) -> None:
    labels, scores = case
    if labels.any():
        assert auprc(labels, scores) == pytest.approx(average_precision_score(labels, scores))
    else:
        assert auprc(labels, scores) is None


def test_hand_values() -> None:
    # Positives 0.8 and 0.4, negatives 0.6 and 0.4: 1, 1, 0 and a tie.
    assert auroc([1, 1, 0, 0], [0.8, 0.4, 0.6, 0.4]) == 2.5 / 4
    # Precision 1 at recall 1/2, then 2/4 at recall 1.
    assert auprc([1, 1, 0, 0], [0.8, 0.4, 0.6, 0.4]) == 0.5 * 1 + 0.5 * 0.5


def test_a_constant_score_is_chance() -> None:
    assert auroc([1, 0, 0, 0], [2, 2, 2, 2]) == 0.5
    assert auprc([1, 0, 0, 0], [2, 2, 2, 2]) == 0.25


@pytest.mark.parametrize("function", [auroc, auprc])
def test_nothing_gives_no_number(function: object) -> None:
    assert callable(function)
    assert function([], []) is None


def test_auroc_depends_on_order_alone_and_flips_with_the_sign() -> None:
    labels = np.array([0, 1, 0, 1, 1, 0])
    scores = np.array([-3.0, 0.2, 0.1, 5.0, -4.0, 0.3])
    value = auroc(labels, scores)
    assert value is not None
    assert auroc(labels, np.exp(scores)) == value
    assert auroc(labels, -scores) == pytest.approx(1 - value)


@pytest.mark.parametrize(
    ("labels", "scores", "line"),
    [
        ([1, 0], [1.0], "2 labels but 1 scores"),
        ([1, 0.5], [1.0, 2.0], "other than 0 and 1"),
        ([1, 0], [1.0, np.nan], "scores: a value is not finite"),
    ],
)
def test_wrong_input_is_refused(labels: list[float], scores: list[float], line: str) -> None:
    with pytest.raises(InputError, match=line):
        auroc(labels, scores)


def test_interval_of_auroc_covers_the_truth_at_about_its_level() -> None:
    # Unit normals one apart: AUROC = Phi(1 / sqrt 2) = 0.7602.
    world, covered = np.random.default_rng(3), 0
    for _ in range(100):
        labels = world.permutation(np.arange(80) % 2)
        found = auroc_estimate(labels, world.normal(size=80) + labels, range(80), world, 200)
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= 0.7602 <= found.high
    assert 87 <= covered <= 100


def test_estimates_carry_counts_and_the_plain_value() -> None:
    labels, scores = [1, 0, 1, 0, 1, 0], [3, 1, 2, 2.5, 0.5, 0]
    found = auroc_estimate(labels, scores, ["a", "a", "b", "b", "c", "c"], rng())
    assert (found.estimate, found.n, found.clusters) == (auroc(labels, scores), 6, 3)


def test_perfect_separation_is_not_reported_as_certain() -> None:
    found = auroc_estimate([1, 0] * 10, [1, 0] * 10, [i // 2 for i in range(20)], rng())
    assert found.estimate == 1
    assert found.low is not None
    assert 0.6 < found.low < 0.95


@pytest.mark.parametrize("labels", [[], [1], [1, 1, 1], [0, 0]])
def test_one_class_only_is_no_number(labels: list[int]) -> None:
    found = auroc_estimate(labels, [0.0] * len(labels), range(len(labels)), rng())
    assert (found.estimate, found.n) == (None, len(labels))
    assert found.method == "none: the data do not define it"


def test_estimates_refuse_clusters_of_another_length() -> None:
    with pytest.raises(InputError, match="2 labels but 1 clusters"):
        auroc_estimate([1, 0], [1, 0], ["a"], rng())

"""Cohen's kappa against scikit-learn's and hand arithmetic."""

import math
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score

from strop.errors import InputError
from strop.stats.kappa import cohen_kappa, kappa_estimate

labels = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=12)


@given(labels)
def test_kappa_is_that_of_scikit_learn(pairs: list[tuple[int, int]]) -> None:
    first, second = zip(*pairs, strict=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        peer = cohen_kappa_score(first, second)
    found = cohen_kappa(first, second)
    assert math.isnan(peer) if found is None else found == pytest.approx(peer, abs=1e-12)


def test_kappa_by_hand() -> None:
    # Agreement 3 of 4; expected (2·3 + 2·1) / 16 = 1/2.
    assert cohen_kappa("aabb", "aaab") == pytest.approx((0.75 - 0.5) / 0.5)


def test_no_kappa_where_agreement_is_certain_or_nothing_is_there() -> None:
    assert cohen_kappa("aaa", "aaa") is None
    assert cohen_kappa([], []) is None
    assert kappa_estimate("aaa", "aaa", "xyz", np.random.default_rng(0), 10).estimate is None


def test_the_interval_holds_the_estimate_and_counts_items() -> None:
    first, second = [0, 1] * 30, [0, 1] * 20 + [0, 0] * 10
    found = kappa_estimate(first, second, range(60), np.random.default_rng(0), 200)
    assert found.low is not None
    assert found.high is not None
    assert found.estimate == pytest.approx(2 / 3)  # agreement 50/60, expected 1/2
    assert found.low < 2 / 3 < found.high
    assert (found.n, found.clusters) == (60, 60)


def test_lengths_must_agree() -> None:
    with pytest.raises(InputError, match="2 labels but 1"):
        cohen_kappa("ab", "a")
    with pytest.raises(InputError, match="2 labels but 1 clusters"):
        kappa_estimate("ab", "ab", "x", np.random.default_rng(0))

"""Best of k exactly: against enumeration of every draw and against pass@k."""

from itertools import combinations
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strop.errors import InputError
from strop.stats.best_of import best_of_curve, pick_chances


def enumerated(scores, k):
    """Every draw of k, its best items sharing the pick."""
    chances = np.zeros(len(scores))
    for drawn in combinations(range(len(scores)), k):
        best = [i for i in drawn if scores[i] == max(scores[j] for j in drawn)]
        chances[best] += 1 / len(best)
    return chances / comb(len(scores), k)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=7), st.data())
def test_as_every_draw_says(scores, data):
    k = data.draw(st.integers(1, len(scores)))
    assert pick_chances(scores, k) == pytest.approx(enumerated(scores, k))


def test_without_ties_by_the_formula():
    assert pick_chances([1, 2, 3, 4], 2) == pytest.approx([0, 1 / 6, 2 / 6, 3 / 6])


def test_the_oracles_curve_is_pass_at_k():
    truth = [1.0, 0.0, 0.0, 1.0, 0.0]
    pass_at = [1 - comb(3, k) / comb(5, k) for k in range(1, 6)]
    assert best_of_curve(truth, truth, 5) == pytest.approx(pass_at)


def test_a_constant_score_stays_at_the_mean():
    assert best_of_curve([7, 7, 7], [1.0, 0.5, 0.0], 3) == pytest.approx([0.5] * 3)


@pytest.mark.parametrize("k", [0, 3])
def test_no_such_draw(k):
    with pytest.raises(InputError, match="best of"):
        pick_chances([1.0, 2.0], k)

"""Parts and orders: every item seen as often, linked to every other, in places that even out."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strop.errors import InputError
from strop.judge.orders import balanced, parts

sizes = st.integers(2, 10).flatmap(lambda most: st.tuples(st.integers(most + 1, 40), st.just(most)))


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def linked(subsets: list[tuple[int, ...]]) -> set[int]:
    """Items that can be reached from item 0 through shared subsets."""
    reached, before = {0}, 0
    while len(reached) > before:
        before = len(reached)
        reached |= {item for subset in subsets if reached & set(subset) for item in subset}
    return reached


@given(sizes, st.integers(0, 50))
def test_overlapping_subsets(size: tuple[int, int], seed: int) -> None:
    count, most = size
    subsets = parts(count, "listwise", most, rng(seed))
    times = [sum(item in subset for subset in subsets) for item in range(count)]
    assert all(len(subset) == most == len(set(subset)) for subset in subsets)
    assert linked(subsets) == set(range(count))
    assert min(times) >= 2
    assert max(times) - min(times) <= 1
    assert len(subsets) == -(-2 * count // most)  # one fewer could not hold every item twice


def test_subsets_of_a_square_meet_few_items_twice() -> None:
    subsets = parts(64, "listwise", 8, rng())
    met = [frozenset(pair) for subset in subsets for pair in combinations(subset, 2)]
    assert len(met) - len(set(met)) <= 10  # of 448; drawn without care about 45 pairs meet twice


@pytest.mark.parametrize("count", [2, 5, 8])
def test_a_group_that_fits_is_shown_whole_in_a_drawn_order(count: int) -> None:
    drawn = [parts(count, "listwise", 8, rng(seed)) for seed in range(40)]
    assert all(len(one) == 1 and sorted(one[0]) == list(range(count)) for one in drawn)
    assert {one[0][0] for one in drawn} == set(range(count))
    assert parts(count, "listwise", 8, rng(7)) == parts(count, "listwise", 8, rng(7))


def test_pairs_singles_and_nothing() -> None:
    pairs = parts(5, "pairwise", 2, rng())
    assert {frozenset(pair) for pair in pairs} == {frozenset(pair) for pair in combinations(range(5), 2)}
    assert len(pairs) == 10
    assert 0 < sum(first > second for first, second in pairs) < 10
    assert parts(3, "pointwise", 8, rng()) == parts(3, "logprob", 8, rng()) == [(0,), (1,), (2,)]
    assert parts(0, "listwise", 8, rng()) == parts(1, "pairwise", 8, rng()) == []
    assert parts(1, "listwise", 8, rng()) == [(0,)]
    with pytest.raises(InputError, match="comparing takes 2"):
        parts(3, "listwise", 1, rng())


def test_orders_by_hand() -> None:
    assert balanced("abcd", 4) == [
        ("a", "b", "c", "d"), ("d", "c", "b", "a"), ("c", "d", "a", "b"), ("b", "a", "d", "c"),
    ]  # fmt: skip
    assert balanced((0, 1, 2, 3), 9)[4:] == [(1, 2, 3, 0), (0, 3, 2, 1), (3, 0, 1, 2), (2, 1, 0, 3)]
    assert balanced((0, 1, 2), 9) == [
        (0, 1, 2), (2, 1, 0), (1, 2, 0), (0, 2, 1), (2, 0, 1), (1, 0, 2),
    ]  # fmt: skip
    assert balanced((4, 7), 4) == [(4, 7), (7, 4)]
    assert balanced((4,), 4) == [(4,)]


@given(st.integers(1, 12), st.integers(1, 30), st.integers(0, 9))
def test_orders_are_distinct_and_mirror_each_other(n: int, count: int, seed: int) -> None:
    order = tuple(rng(seed).permutation(n).tolist())
    orders = balanced(order, count)
    assert orders[0] == order
    assert len(set(orders)) == len(orders) == min(count, max(2 * n, 2) if n > 2 else n)
    assert all(sorted(one) == list(range(n)) for one in orders)
    for one, other in zip(orders[::2], orders[1::2], strict=False):
        assert other == one[::-1]


@pytest.mark.parametrize("n", [4, 8])
def test_four_orders_put_every_item_as_often_in_either_half(n: int) -> None:
    orders = balanced(range(n), 4)
    for item in range(n):
        places = [order.index(item) for order in orders]
        assert sum(place < n // 2 for place in places) == 2
        assert sum(places) == 2 * (n - 1)
    assert n != 4 or all(sorted(order.index(i) for order in orders) == [0, 1, 2, 3] for i in range(4))

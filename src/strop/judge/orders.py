"""What a judge is shown together, and in which orders. Pure: places from 0, and a generator for chance."""

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from strop.errors import InputError
from strop.judge.settings import ALONE, Mode

Order = tuple[int, ...]

SHOWN_AT_LEAST = 2
"""In a group too large to be shown at once, every attempt is in at least this many subsets."""


def parts(count: int, mode: Mode, most_at_once: int, rng: np.random.Generator) -> list[Order]:
    """What is shown together, each part in an order drawn from `rng`.

    "listwise": all at once, or overlapping subsets where there are more than `most_at_once`; "pairwise":
    every pair; "pointwise" and "logprob": each alone. Raises InputError for most_at_once under 2.
    """
    if most_at_once < 2:
        raise InputError(f"at most {most_at_once} at once; comparing takes 2")
    if mode in ALONE:
        return [(place,) for place in range(count)]
    if mode == "pairwise":
        return [_drawn(pair, rng) for pair in combinations(range(count), 2)]
    if count <= most_at_once:
        return [_drawn(range(count), rng)] if count else []
    return [_drawn(subset, rng) for subset in _overlapping(count, most_at_once, rng)]


def balanced(order: Sequence[int], count: int) -> list[Order]:
    """At most `count` distinct orders that even out where an item stands.

    The order and its reverse; the order rotated by half and that reversed; then by a quarter, by three
    quarters, and by what is left, each with its reverse. Over an order and its reverse every item has the
    same mean place; over the first four of four items each is once in every place.
    """
    n = len(order)
    shifts = dict.fromkeys([0, n // 2, n // 4, 3 * n // 4, *range(n)])
    rotated = [tuple(order[shift:]) + tuple(order[:shift]) for shift in shifts]
    both = [one for turned in rotated for one in (turned, turned[::-1])]
    return list(dict.fromkeys(both))[:count]


def _drawn(places: Sequence[int], rng: np.random.Generator) -> Order:
    return tuple(places[i] for i in rng.permutation(len(places)))


def _overlapping(count: int, size: int, rng: np.random.Generator) -> list[list[int]]:
    """The fewest subsets of `size` < count with every item in SHOWN_AT_LEAST of them.

    Filled one after the other by the item that was used least, then by one that nothing yet links to the
    subset, then by the one that met the subset's items least, then by chance. Uses so differ by at most one,
    and all items are linked through shared subsets.
    """
    used = np.zeros(count, dtype=np.int64)
    met = np.zeros((count, count), dtype=np.int64)
    linked = np.arange(count)
    subsets: list[list[int]] = []
    for _ in range(-(-SHOWN_AT_LEAST * count // size)):
        subset: list[int] = []
        for _ in range(size):
            taken = np.isin(np.arange(count), subset)
            near = np.isin(linked, linked[subset])
            item = int(np.lexsort((rng.random(count), met[subset].sum(axis=0), near, used, taken))[0])
            subset.append(item)
            used[item] += 1
        met[np.ix_(subset, subset)] += 1
        linked[np.isin(linked, linked[subset])] = linked[subset[0]]
        subsets.append(subset)
    return subsets

"""Tree packing against brute force."""

from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from local_model import make_row
from strop.engines.local.tree import Pack, pack
from strop.trajectory.tokens import Row


@st.composite
def some_rows(draw: st.DrawFn) -> list[Row]:
    """Rows over two or three tokens, so that prefixes are shared, nested and repeated."""
    rows = []
    for number in range(draw(st.integers(1, 8))):
        ids = draw(st.lists(st.integers(0, 2), min_size=2, max_size=9))
        mask = [False, *draw(st.lists(st.booleans(), min_size=len(ids) - 1, max_size=len(ids) - 1))]
        rows.append(make_row(ids, mask, name=f"r{number}"))
    return rows


def prefixes(rows: Sequence[Row]) -> set[tuple[int, ...]]:
    return {tuple(row.ids[: n + 1].tolist()) for row in rows for n in range(len(row.ids))}


def path(packed: Pack, node: int) -> list[int]:
    """Tokens of the nodes that a node sees, in the order of their positions."""
    seen = np.flatnonzero(packed.visible()[node])
    ordered = seen[np.argsort(packed.positions[seen])]
    assert packed.positions[ordered].tolist() == list(range(len(ordered)))
    return packed.ids[ordered].tolist()  # type: ignore[no-any-return]


@given(some_rows())
@settings(max_examples=60, deadline=None)
def test_one_node_for_each_distinct_prefix(rows: list[Row]) -> None:
    trained = [row for row in rows if row.mask.any()]
    packs = pack(rows, 10_000)
    assert sum(len(p.ids) for p in packs) == len(prefixes(trained))
    assert len(packs) == min(1, len(trained))


@given(some_rows(), st.integers(1, 14))
@settings(max_examples=60, deadline=None)
def test_every_sampled_token_is_predicted_by_its_own_prefix(rows: list[Row], max_tokens: int) -> None:
    packs = pack(rows, max_tokens)
    assert [i for p in packs for i in p.rows] == [i for i, row in enumerate(rows) if row.mask.any()]
    for packed in packs:
        members = [rows[i] for i in packed.rows]
        assert len(packed.ids) == len(prefixes(members))
        assert len(packed.ids) <= max_tokens or len(members) == 1
        for row, predictor, target in zip(members, packed.predictor, packed.target, strict=True):
            where = np.flatnonzero(row.mask)
            assert target.tolist() == row.ids[where].tolist()
            assert [path(packed, n) for n in predictor] == [row.ids[:w].tolist() for w in where]


@given(some_rows(), st.integers(1, 14))
@settings(max_examples=60, deadline=None)
def test_no_other_cuts_have_fewer_nodes_or_as_many_and_fewer_trees(rows: list[Row], max_tokens: int) -> None:
    trained = [row for row in rows if row.mask.any()]
    ways = []
    for parts in all_parts(trained):
        sizes = [len(prefixes(part)) for part in parts]
        if all(size <= max_tokens or len(part) == 1 for size, part in zip(sizes, parts, strict=True)):
            ways.append((sum(sizes), len(sizes)))
    packs = pack(rows, max_tokens)
    assert (sum(len(p.ids) for p in packs), len(packs)) == min(ways)


def all_parts(rows: Sequence[Row]) -> Iterator[list[Sequence[Row]]]:
    """Every way to cut the rows into parts."""
    if not rows:
        yield []
    for first in range(1, len(rows) + 1):
        yield from ([rows[:first], *rest] for rest in all_parts(rows[first:]))


def test_a_group_that_fits_is_not_cut() -> None:
    """Two groups of 4 + 3 * 2 nodes: a tree of 16 that is filled up leaves a row that repeats its prompt."""
    rows = [make_row([group] * 4 + [row, row], [0] * 4 + [1, 1]) for group in (7, 8) for row in (1, 2, 3)]
    assert [p.rows for p in pack(rows, 16)] == [(0, 1, 2), (3, 4, 5)]
    assert [p.rows for p in pack(rows, 20)] == [(0, 1, 2, 3, 4, 5)]


def test_a_known_tree() -> None:
    """1 2 3 4, 1 2 5 and 1 2 3: five nodes; 5 sees 1 and 2, not 3 and 4."""
    rows = [
        make_row([1, 2, 3, 4], [0, 0, 1, 1]),
        make_row([1, 2, 5], [0, 0, 1]),
        make_row([1, 2, 3], [0, 0, 1]),
    ]
    (packed,) = pack(rows, 100)
    assert packed.ids.tolist() == [1, 2, 3, 4, 5]
    assert packed.positions.tolist() == [0, 1, 2, 3, 2]
    assert packed.visible().astype(int).tolist() == [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [1, 1, 1, 0, 0],
        [1, 1, 1, 1, 0],
        [1, 1, 0, 0, 1],
    ]
    assert [p.tolist() for p in packed.predictor] == [[1, 2], [1], [1]]
    assert [t.tolist() for t in packed.target] == [[3, 4], [5], [3]]


def test_nothing_to_predict_is_nothing_to_compute() -> None:
    assert pack([], 10) == []
    assert pack([make_row([1, 2, 3], [0, 0, 0]), make_row([], [])], 10) == []


def test_a_sampled_token_without_a_prompt_is_refused() -> None:
    with pytest.raises(AssertionError, match="needs a token before it"):
        pack([make_row([1, 2], [1, 1])], 10)

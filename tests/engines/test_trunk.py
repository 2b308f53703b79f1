"""Cutting rows into trunk and tails, against brute force."""

from collections.abc import Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from local_model import make_row
from strop.engines.local.trunk import Cut, Part, Tails, cut
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


def text(whole: Cut, part: Part, above: int, node: int) -> list[int]:
    """The tokens from the root to a node of a part, by the branch that it is on."""
    (branch,) = [b for b in part.branches if b.start <= node < b.stop]
    seen = [*branch.path.tolist(), *range(above + branch.start, above + node + 1)]
    ids = np.concatenate([whole.trunk.ids, part.ids]) if above else part.ids
    positions = np.concatenate([whole.trunk.positions, part.positions]) if above else part.positions
    assert positions[seen].tolist() == list(range(len(seen)))
    return ids[seen].tolist()  # type: ignore[no-any-return]


def predictions(whole: Cut, tails: Tails, k: int) -> list[tuple[list[int], int]]:
    """Before each sampled token of a row, the tokens that predict it; and the token."""
    above, found = len(whole.trunk.ids), []
    for at in tails.where[k].tolist():
        inside = at < len(whole.trunk.pairs)
        part = whole.trunk if inside else tails.part
        node, target = part.pairs[at if inside else at - len(whole.trunk.pairs)].tolist()
        found.append((text(whole, part, 0 if inside else above, node), target))
    return found


def wanted(row: Row) -> list[tuple[list[int], int]]:
    return [(row.ids[:at].tolist(), int(row.ids[at])) for at in np.flatnonzero(row.mask)]


@given(some_rows(), st.integers(1, 40))
@settings(max_examples=150, deadline=None)
def test_each_sampled_token_is_predicted_once_from_its_own_row(rows: list[Row], bound: int) -> None:
    found: dict[int, list[tuple[list[int], int]]] = {}
    for whole in cut(rows, bound):
        for tails in whole.tails:
            for k, index in enumerate(tails.rows):
                assert index not in found
                found[index] = predictions(whole, tails, k)
    assert found == {i: wanted(row) for i, row in enumerate(rows) if row.mask.any()}


@given(some_rows(), st.integers(9, 40))
@settings(max_examples=150, deadline=None)
def test_a_trunk_and_its_tails_keep_the_bound(rows: list[Row], bound: int) -> None:
    for whole in cut(rows, bound):
        assert all(len(whole.trunk.ids) + len(tails.part.ids) <= bound for tails in whole.tails)


@given(some_rows())
@settings(max_examples=60, deadline=None)
def test_without_a_bound_every_prefix_is_computed_once(rows: list[Row]) -> None:
    rows = [row for row in rows if row.mask.any()]
    prefixes = {tuple(row.ids[: n + 1].tolist()) for row in rows for n in range(len(row.ids))}
    assert sum(nodes(whole) for whole in cut(rows, 1000)) == len(prefixes)


def nodes(whole: Cut) -> int:
    return len(whole.trunk.ids) + sum(len(tails.part.ids) for tails in whole.tails)


def group(prompt: int, attempts: int, reply: int) -> list[Row]:
    """Attempts at one prompt: the prompt's tokens are its own, each reply's too."""
    mask = [0] * prompt + [1] * reply
    return [
        make_row([*range(prompt), *[1000 + 100 * n + i for i in range(reply)]], mask, name=f"{n}")
        for n in range(attempts)
    ]


def sizes(rows: Sequence[Row], bound: int) -> list[tuple[int, list[int]]]:
    return [(len(c.trunk.ids), [len(t.part.ids) for t in c.tails]) for c in cut(rows, bound)]


def test_tails_share_what_room_the_trunk_leaves() -> None:
    assert sizes(group(20, 5, 6), 32) == [(20, [12, 12, 6])]


def test_another_group_opens_its_own_trunk() -> None:
    other = [make_row((row.ids + 5000).tolist(), row.mask.tolist(), name="o") for row in group(20, 3, 6)]
    assert sizes([*group(20, 3, 6), *other], 40) == [(20, [18]), (20, [18])]


def test_rows_of_two_families_that_alternate_are_cut_apart() -> None:
    one, other = (
        group(20, 3, 6),
        [make_row((row.ids + 5000).tolist(), row.mask.tolist(), name="o") for row in group(20, 3, 6)],
    )
    mixed = [row for pair in zip(one, other, strict=True) for row in pair]
    assert [whole.tails[0].rows for whole in cut(mixed, 40)] == [(0, 2, 4), (1, 3, 5)]


def test_rows_that_share_nothing_need_no_trunk() -> None:
    apart = [make_row([100 * n + i for i in range(10)], [0] * 5 + [1] * 5, name=f"{n}") for n in range(4)]
    assert sizes(apart, 25) == [(0, [20, 20])]


def test_the_same_row_twice_is_a_trunk_without_tails() -> None:
    twice = [*group(4, 1, 3), *group(4, 1, 3)]
    (whole,) = cut(twice, 100)
    assert (len(whole.trunk.ids), len(whole.tails[0].part.ids)) == (7, 0)
    assert [len(where) for where in whole.tails[0].where] == [3, 3]


def test_a_row_without_a_sampled_token_is_in_none() -> None:
    assert cut([make_row([1, 2, 3], [0, 0, 0])], 10) == []

"""Tree packing: rows that share prefixes are computed once, as a tree whose nodes see their ancestors.

A group's rows share the system prompt, the task and often whole first turns. Packed, every
distinct prefix is one node, and a node attends to its ancestors and itself only, at the position it has in
its row; so each row's log-probs are what they would be alone. Pure numpy.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from strop.trajectory.tokens import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """The nodes that one row added to the tree: [start, stop), each the parent of the next.

    `path` int64 are the nodes above `start`, the root first.
    """

    start: int
    stop: int
    path: NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pack:
    """Some rows as one tree of T nodes.

    `ids`, `positions` int64 [T]; `branches` cover all nodes, in order; a node attends to the path above
    its branch and to the branch's nodes up to itself. `rows` indices into the rows given;
    `predictor[k]`, `target[k]` int64 [n_sampled]: for the k-th of those rows, the node whose output
    predicts each sampled token, and that token.
    """

    ids: NDArray[np.int64]
    positions: NDArray[np.int64]
    branches: tuple[Branch, ...]
    rows: tuple[int, ...]
    predictor: tuple[NDArray[np.int64], ...]
    target: tuple[NDArray[np.int64], ...]

    def visible(self) -> NDArray[np.bool_]:
        """[T, T], true where node i attends to node j: for attention that takes a mask only."""
        seen = np.zeros((len(self.ids), len(self.ids)), dtype=np.bool_)
        for branch in self.branches:
            seen[branch.start : branch.stop, branch.path] = True
            size = branch.stop - branch.start
            seen[branch.start : branch.stop, branch.start : branch.stop] = np.tri(size, dtype=np.bool_)
        return seen


class _Tree:
    def __init__(self) -> None:
        self.ids: list[int] = []
        self.positions: list[int] = []
        self.child: dict[tuple[int, int], int] = {}
        self.branches: list[Branch] = []

    def insert(self, ids: Sequence[int]) -> NDArray[np.int64]:
        """The node of each token."""
        nodes, node, before = list[int](), -1, len(self.ids)
        for token in ids:
            found = self.child.get((node, token))
            if found is None:
                found = self.child[node, token] = len(self.ids)
                self.ids.append(token)
                self.positions.append(len(nodes))
            nodes.append(found)
            node = found
        placed = np.asarray(nodes, dtype=np.int64)
        if len(self.ids) > before:
            path = placed[: len(placed) - (len(self.ids) - before)]
            self.branches.append(Branch(start=before, stop=len(self.ids), path=path))
        return placed


def pack(rows: Sequence[Row], max_tokens: int) -> list[Pack]:
    """Pack rows, in order, into trees of at most `max_tokens` nodes: the fewest nodes in all, then trees.

    So a group is cut only where it does not fit, as its prefix is computed again behind a cut. A row longer
    than `max_tokens` gets a tree of its own; a row without a sampled token needs nothing computed and is in
    none. A sampled token at position 0 has no predictor and is refused by an assertion: a prompt is never
    empty.
    """
    sampled = [index for index, row in enumerate(rows) if row.mask.any()]
    cuts = _cuts([rows[index].ids for index in sampled], max_tokens)
    return [_pack(sampled[start:stop], rows) for start, stop in pairwise(cuts)]


def _cuts(ids: Sequence[NDArray[np.int64]], most: int) -> list[int]:
    """Where the trees begin, and the end of the last one: shortest paths over all places to cut."""
    best: list[tuple[int, int]] = [(0, 0), *[(sum(map(len, ids)) + 1, 0)] * len(ids)]
    begun_at, shared = [0] * (len(ids) + 1), _Shared(ids)
    for start in range(len(ids)):
        size = len(ids[start])
        for stop in range(start + 1, len(ids) + 1):
            cost = (best[start][0] + size, best[start][1] + 1)
            if cost < best[stop]:
                best[stop], begun_at[stop] = cost, start
            if stop == len(ids):
                break
            size += len(ids[stop]) - shared(start, stop)
            if size > most:
                break
    cuts = [len(ids)]
    while cuts[-1]:
        cuts.append(begun_at[cuts[-1]])
    return cuts[::-1]


class _Shared:
    """How many of a row's first tokens some row of those before it has, too."""

    def __init__(self, ids: Sequence[NDArray[np.int64]]) -> None:
        self._ids = ids
        self._most: list[list[int]] = [[] for _ in ids]

    def __call__(self, start: int, row: int) -> int:
        """Of `row`'s tokens, with the rows [start, row)."""
        most = self._most[row]
        for other in range(row - 1 - len(most), start - 1, -1):
            most.append(max(_common(self._ids[row], self._ids[other]), most[-1] if most else 0))
        return most[row - 1 - start]


def _common(one: NDArray[np.int64], other: NDArray[np.int64]) -> int:
    size = min(len(one), len(other))
    apart = one[:size] != other[:size]
    return int(apart.argmax()) if apart.any() else size


def _pack(members: Sequence[int], rows: Sequence[Row]) -> Pack:
    tree = _Tree()
    placed = [tree.insert(rows[index].ids.tolist()) for index in members]
    predictor, target = [], []
    for index, nodes in zip(members, placed, strict=True):
        where = np.flatnonzero(rows[index].mask)
        assert where[0] > 0, "a sampled token needs a token before it"
        predictor.append(nodes[where - 1])
        target.append(rows[index].ids[where])
    return Pack(
        ids=np.asarray(tree.ids, dtype=np.int64),
        positions=np.asarray(tree.positions, dtype=np.int64),
        branches=tuple(tree.branches),
        rows=tuple(members),
        predictor=tuple(predictor),
        target=tuple(target),
    )

"""Tree packing: rows that share prefixes are computed once, as a tree whose nodes see their ancestors.

A group's rows share the system prompt, the task and often whole first turns. Packed, every
distinct prefix is one node, and a node attends to its ancestors and itself only, at the position it has in
its row; so each row's log-probs are what they would be alone. Pure numpy.
"""

from collections.abc import Sequence
from dataclasses import dataclass

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

    def size_with(self, ids: Sequence[int]) -> int:
        node, depth = -1, 0
        for token in ids:
            found = self.child.get((node, token))
            if found is None:
                break
            node, depth = found, depth + 1
        return len(self.ids) + len(ids) - depth

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
    """Pack rows, in order, into as few trees of at most `max_tokens` nodes as a greedy pass finds.

    A row longer than `max_tokens` gets a tree of its own; a row without a sampled token needs nothing
    computed and is in none. A sampled token at position 0 has no predictor and is refused by an
    assertion: a prompt is never empty.
    """
    packs: list[Pack] = []
    tree, members, placed = _Tree(), list[int](), list[NDArray[np.int64]]()
    for index, row in enumerate(rows):
        if not row.mask.any():
            continue
        ids = row.ids.tolist()
        if members and tree.size_with(ids) > max_tokens:
            packs.append(_finish(tree, members, placed, rows))
            tree, members, placed = _Tree(), [], []
        members.append(index)
        placed.append(tree.insert(ids))
    if members:
        packs.append(_finish(tree, members, placed, rows))
    return packs


def _finish(
    tree: _Tree, members: Sequence[int], placed: Sequence[NDArray[np.int64]], rows: Sequence[Row]
) -> Pack:
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

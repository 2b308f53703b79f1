"""Tree packing: rows that share prefixes are computed once, as a tree with an ancestor mask.

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
class Pack:
    """Some rows as one tree of T nodes.

    `ids`, `positions` int64 [T]; `visible` bool [T, T], visible[i, j] where node i attends to j;
    `rows` indices into the rows given; `predictor[k]`, `target[k]` int64 [n_sampled]: for the k-th of
    those rows, the node whose output predicts each sampled token, and that token.
    """

    ids: NDArray[np.int64]
    positions: NDArray[np.int64]
    visible: NDArray[np.bool_]
    rows: tuple[int, ...]
    predictor: tuple[NDArray[np.int64], ...]
    target: tuple[NDArray[np.int64], ...]


class _Tree:
    def __init__(self) -> None:
        self.ids: list[int] = []
        self.parent: list[int] = []
        self.child: dict[tuple[int, int], int] = {}

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
        nodes, node = [], -1
        for token in ids:
            found = self.child.get((node, token))
            if found is None:
                found = self.child[node, token] = len(self.ids)
                self.ids.append(token)
                self.parent.append(node)
            nodes.append(found)
            node = found
        return np.asarray(nodes, dtype=np.int64)


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
    size = len(tree.ids)
    visible = np.zeros((size, size), dtype=np.bool_)
    positions = np.zeros(size, dtype=np.int64)
    for node, parent in enumerate(tree.parent):
        if parent >= 0:
            visible[node] = visible[parent]
            positions[node] = positions[parent] + 1
        visible[node, node] = True
    predictor, target = [], []
    for index, nodes in zip(members, placed, strict=True):
        where = np.flatnonzero(rows[index].mask)
        assert where[0] > 0, "a sampled token needs a token before it"
        predictor.append(nodes[where - 1])
        target.append(rows[index].ids[where])
    return Pack(
        ids=np.asarray(tree.ids, dtype=np.int64),
        positions=positions,
        visible=visible,
        rows=tuple(members),
        predictor=tuple(predictor),
        target=tuple(target),
    )

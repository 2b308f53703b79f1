"""Rows cut into what several share, the trunk, and the tails that each has alone.

A packed tree holds the activations of all its rows until their backward pass. Cut, the trunk is computed
once, then some tails at a time, forward and backward, on the trunk's keys and values; their gradients
gather there, and the trunk's backward pass comes last. So memory is that of the trunk and some tails,
however many attempts a group has, and no prefix is computed twice. Pure numpy.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np
from numpy.typing import NDArray

from strop.engines.local.tree import Branch
from strop.trajectory.tokens import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Some nodes of a cut, in order: `ids`, `positions` int64 [n].

    `branches` cover them, [start, stop) counted from the part's first node; a branch's `path` counts all
    nodes of the trunk first, then the part's own. `pairs` int64 [p, 2]: a node of the part, and a token
    that it predicts; `heat` float64 [p], at which temperature.
    """

    ids: NDArray[np.int64]
    positions: NDArray[np.int64]
    branches: tuple[Branch, ...]
    pairs: NDArray[np.int64]
    heat: NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tails:
    """Some rows' tails, `part`; `rows` indices into the rows given.

    `where` [k] int64 [n_sampled]: each sampled token of the k-th of those rows, in the trunk's pairs and then
    the part's.
    """

    part: Part
    rows: tuple[int, ...]
    where: tuple[NDArray[np.int64], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """A trunk, which has no node where the rows share nothing, and all tails on it."""

    trunk: Part
    tails: tuple[Tails, ...]


def cut(rows: Sequence[Row], max_tokens: int) -> list[Cut]:
    """Cut rows so that a trunk and the tails computed with it have at most `max_tokens` nodes.

    A row longer than that gets a cut of its own; a row without a sampled token needs nothing computed and
    is in none. As few nodes are computed twice as a greedy pass finds.
    """
    # By their tokens, so that rows which share the most are neighbours.
    useful = sorted((i for i, row in enumerate(rows) if row.mask.any()), key=lambda i: rows[i].ids.tolist())
    cuts: list[Cut] = []
    family = _Family()
    for index, following in zip_longest(useful, useful[1:]):
        ahead = 0 if following is None else _alike(rows[index].ids, rows[following].ids)
        if family.members and family.size_with(rows[index].ids, ahead) > max_tokens:
            cuts.append(_cut(family, rows, max_tokens))
            family = _Family()
        family.insert(index, rows[index].ids)
    if family.members:
        cuts.append(_cut(family, rows, max_tokens))
    return cuts


class _Family:
    """Rows inserted into a tree: each one's nodes, how many rows each node has, and which came first."""

    def __init__(self) -> None:
        self.members: list[int] = []
        self.nodes: list[NDArray[np.int64]] = []
        self.ids: list[int] = []
        self.count: list[int] = []
        self._first: list[int] = []
        self._child: dict[tuple[int, int], int] = {}
        self._trunk = 0
        self._tails: list[int] = []

    def size_with(self, ids: NDArray[np.int64], ahead: int) -> int:
        """Nodes of the trunk and the longest tail with this row in, and a next one alike so far `ahead`."""
        path = self._path(ids.tolist())
        lone = self._lone(path)
        trunk = self._trunk + len(lone) + max(0, ahead - len(path))
        return trunk + max([len(ids) - max(len(path), ahead), *self._tails_without(lone)])

    def insert(self, index: int, ids: NDArray[np.int64]) -> None:
        tokens = ids.tolist()
        nodes = self._path(tokens)
        lone = self._lone(nodes)
        self._tails = [*self._tails_without(lone), len(tokens) - len(nodes)]
        self._trunk += len(lone)
        for node in nodes:
            self.count[node] += 1
        for token in tokens[len(nodes) :]:
            self._child[nodes[-1] if nodes else -1, token] = len(self.ids)
            nodes.append(len(self.ids))
            self.ids.append(token)
            self.count.append(1)
            self._first.append(len(self.members))
        self.members.append(index)
        self.nodes.append(np.asarray(nodes, dtype=np.int64))

    def _lone(self, path: Sequence[int]) -> list[int]:
        """The nodes of a path that one row has so far: the end of it, all of the same row's tail."""
        return [node for node in path if self.count[node] == 1]

    def _tails_without(self, lone: Sequence[int]) -> list[int]:
        """How long each row's tail is once these nodes are in the trunk."""
        owner = self._first[lone[0]] if lone else None
        return [size - len(lone) * (k == owner) for k, size in enumerate(self._tails)]

    def _path(self, tokens: Sequence[int]) -> list[int]:
        """The nodes that are there already."""
        path, node = list[int](), -1
        for token in tokens:
            found = self._child.get((node, token))
            if found is None:
                break
            path.append(found)
            node = found
        return path


def _cut(family: _Family, rows: Sequence[Row], max_tokens: int) -> Cut:
    shared = np.asarray(family.count) > 1
    place = np.cumsum(shared) - 1
    ids = np.asarray(family.ids, dtype=np.int64)[shared]
    placed = [place[nodes[shared[nodes]]] for nodes in family.nodes]
    trunk_wanted = [
        _wanted(rows[i], nodes, 0, len(nodes)) for i, nodes in zip(family.members, placed, strict=True)
    ]
    pairs, heat, trunk_where = _distinct(trunk_wanted)
    trunk = Part(
        ids=ids,
        positions=_depths(placed, len(ids)),
        branches=_chains(placed, len(ids)),
        pairs=pairs,
        heat=heat,
    )
    room = max(1, max_tokens - len(ids))
    parts = [
        _tails(some, family.members, placed, trunk_where, rows, len(pairs))
        for some in _shared_out(
            [len(rows[i].ids) - len(p) for i, p in zip(family.members, placed, strict=True)], room
        )
    ]
    return Cut(trunk=trunk, tails=tuple(parts))


def _shared_out(sizes: Sequence[int], room: int) -> list[list[int]]:
    """Neighbours together as long as their sizes add up to `room` at most."""
    parts, size = [list[int]()], 0
    for index, more in enumerate(sizes):
        if parts[-1] and size + more > room:
            parts.append([])
            size = 0
        parts[-1].append(index)
        size += more
    return parts


def _tails(
    some: Sequence[int],
    members: Sequence[int],
    placed: Sequence[NDArray[np.int64]],
    trunk_where: Sequence[NDArray[np.int64]],
    rows: Sequence[Row],
    trunk_pairs: int,
) -> Tails:
    ids, positions, branches, wanted = [], [], [], []
    start = 0
    for k in some:
        row, depth = rows[members[k]], len(placed[k])
        size = len(row.ids) - depth
        wanted.append(_wanted(row, np.arange(start - depth, start + size), depth, len(row.ids)))
        ids.append(row.ids[depth:])
        positions.append(np.arange(depth, len(row.ids)))
        if size:
            branches.append(Branch(start=start, stop=start + size, path=placed[k]))
        start += size
    pairs, heat, own_where = _distinct(wanted)
    part = Part(
        ids=np.concatenate(ids),
        positions=np.concatenate(positions),
        branches=tuple(branches),
        pairs=pairs,
        heat=heat,
    )
    where = tuple(
        np.concatenate([trunk_where[k], trunk_pairs + own]) for k, own in zip(some, own_where, strict=True)
    )
    return Tails(part=part, rows=tuple(members[k] for k in some), where=where)


def _wanted(row: Row, nodes: NDArray[np.int64], start: int, stop: int) -> NDArray[np.float64]:
    """[3, n]: node, target and temperature of the sampled tokens that positions [start, stop) predict."""
    at = np.flatnonzero(row.mask) - 1
    assert at[0] >= 0, "a sampled token needs a token before it"
    at = at[(at >= start) & (at < stop)]
    heat = np.full(len(at), row.temperature or 1.0)
    return np.stack([nodes[at].astype(np.float64), row.ids[at + 1].astype(np.float64), heat])


def _distinct(
    wanted: Sequence[NDArray[np.float64]],
) -> tuple[NDArray[np.int64], NDArray[np.float64], list[NDArray[np.int64]]]:
    """The distinct columns of all, as pairs and temperatures, and where each one's columns are in them."""
    keys, index = np.unique(np.concatenate(wanted, axis=1), axis=1, return_inverse=True)
    where = np.split(index.reshape(-1).astype(np.int64), np.cumsum([w.shape[1] for w in wanted])[:-1])
    return keys[:2].T.astype(np.int64), keys[2], where


def _depths(placed: Sequence[NDArray[np.int64]], size: int) -> NDArray[np.int64]:
    depths = np.zeros(size, dtype=np.int64)
    for nodes in placed:
        depths[nodes] = np.arange(len(nodes))
    return depths


def _chains(placed: Sequence[NDArray[np.int64]], size: int) -> tuple[Branch, ...]:
    """The trunk's nodes as branches: each a stretch of neighbours, each the parent of the next."""
    parent = np.full(size, -1, dtype=np.int64)
    for nodes in placed:
        parent[nodes[1:]] = nodes[:-1]
    starts = [node for node in range(size) if node == 0 or parent[node] != node - 1]
    found = {}
    for nodes in placed:
        for depth in np.flatnonzero(np.isin(nodes, starts)):
            found[int(nodes[depth])] = nodes[:depth]
    stops = [*starts[1:], size]
    return tuple(
        Branch(start=a, stop=b, path=found[a]) for a, b in zip(starts, stops[: len(starts)], strict=True)
    )


def _alike(one: NDArray[np.int64], other: NDArray[np.int64]) -> int:
    size = min(len(one), len(other))
    differ = np.flatnonzero(one[:size] != other[:size])
    return int(differ[0]) if len(differ) else size

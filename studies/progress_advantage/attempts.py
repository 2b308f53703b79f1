"""Attempts drawn from a policy, and which of their steps was truly bad."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from studies.progress_advantage.mdp import RIGHT, START, Floats, Worlds

Index = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempts:
    """N attempts in each of W worlds: `states`, `actions` [W, N, H], steps taken `lengths` [W, N], and
    `success` [W, N], 1 where the attempt ended well. What stands behind an attempt's length means nothing."""

    states: Index
    actions: Index
    lengths: Index
    success: Floats

    def read(self, table: Floats) -> Floats:
        """table[w, t, s, a] at each step, [W, N, H]."""
        w, _, h = self.states.shape
        result: Floats = table[np.arange(w)[:, None, None], np.arange(h), self.states, self.actions]
        return result

    def steps(self, table: Floats) -> list[list[Floats]]:
        """The same without what stands behind the end: one array an attempt."""
        read = self.read(table)
        return [
            [row[:n] for row, n in zip(rows, lengths, strict=True)]
            for rows, lengths in zip(read, self.lengths, strict=True)
        ]

    def totals(self, table: Floats, how: Callable[[Floats], float]) -> Floats:
        """One number an attempt from its steps, [W, N]."""
        return np.array([[how(steps) for steps in some] for some in self.steps(table)])


def draw(worlds: Worlds, policy: Floats, n: int, rng: np.random.Generator) -> Attempts:
    """n attempts a world from the start."""
    w = np.arange(len(worlds.final))[:, None]
    here = np.full((len(worlds.final), n), START, dtype=np.int64)
    states, actions, lengths = [], [], np.zeros(here.shape, dtype=np.int64)
    for t in range(worlds.horizon):
        action = _pick(np.exp(policy[w, t, here]), rng)
        states.append(here)
        actions.append(action)
        lengths += worlds.live[here]
        here = _pick(worlds.transitions[w, here, action], rng)
    right = np.arange(worlds.final.shape[-1])[RIGHT]
    return Attempts(
        states=np.stack(states, axis=-1),
        actions=np.stack(actions, axis=-1),
        lengths=lengths,
        success=(here == right).astype(np.float64),
    )


def first_bad(regret: Floats, least: float) -> int | None:
    """The first step that gave away `least` or more of the chance of success, from regrets [K]; None where
    no step did."""
    bad = np.flatnonzero(regret >= least)
    return int(bad[0]) if len(bad) else None


def _pick(p: Floats, rng: np.random.Generator) -> Index:
    """One index an entry by the probabilities on the last axis."""
    edges = np.cumsum(p, axis=-1)
    drawn = rng.random(p.shape[:-1])[..., None] * edges[..., -1:]
    picked: Index = (drawn >= edges).sum(axis=-1)
    return picked

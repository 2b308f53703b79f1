"""Finite-horizon worlds as tables: states, actions, transitions, rewards. Many at once, one along each axis.

Shapes: W worlds, H steps, S states, A actions. A policy is its log-probabilities [W, H, S, A].
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

RIGHT, WRONG = -2, -1
"""The two last states of every world: ended well (worth 1) and ended badly (worth 0)."""
START = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Worlds:
    """W worlds: `transitions` P(s' | s, a) [W, S, A, S], `rewards` r(s, a) [W, S, A], `final` [W, S], what
    the state after the last step is worth, and the `horizon` H. Attempts begin in state START."""

    transitions: Floats
    rewards: Floats
    final: Floats
    horizon: int

    @property
    def live(self) -> NDArray[np.bool_]:
        """States in which a step is taken, [S]; in the two others the attempt is over."""
        live = np.ones(self.final.shape[-1], dtype=np.bool_)
        live[[RIGHT, WRONG]] = False
        return live

    def expected(self, values: Floats) -> Floats:
        """E[values(s') | s, a], [W, S, A] from values [W, S]."""
        w, s, a, _ = self.transitions.shape
        flat = self.transitions.reshape(w, s * a, s) @ values[:, :, None]
        return flat.reshape(w, s, a)


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """How random worlds are drawn: sizes, and the share of transitions that chance decides."""

    states: int = 8
    actions: int = 4
    horizon: int = 8
    chance: float = 0.4
    well: float = 0.05
    badly: float = 0.15


def random_worlds(n: int, rng: np.random.Generator, family: Family) -> Worlds:
    """n worlds. An action leads to one state, drawn for it; with probability `chance` to another, by a
    Dirichlet row of its own. States that end the attempt are drawn with probabilities `well` and `badly`.
    Success is all that pays."""
    states, actions = family.states, family.actions
    ends = np.full(states + 2, (1 - family.well - family.badly) / states)
    ends[[RIGHT, WRONG]] = family.well, family.badly
    successor = rng.choice(states + 2, p=ends, size=(n, states, actions))
    surely = np.eye(states + 2)[successor]
    by_chance = rng.dirichlet(ends * (states + 2) / 2, size=(n, states, actions))
    transitions = np.zeros((n, states + 2, actions, states + 2))
    transitions[:, :states] = (1 - family.chance) * surely + family.chance * by_chance
    transitions[:, RIGHT, :, RIGHT] = transitions[:, WRONG, :, WRONG] = 1.0
    final = np.zeros((n, states + 2))
    final[:, RIGHT] = 1.0
    rewards = np.zeros((n, states + 2, actions))
    return Worlds(transitions=transitions, rewards=rewards, final=final, horizon=family.horizon)


def with_rewards(worlds: Worlds, rng: np.random.Generator) -> Worlds:
    """The same worlds where every action pays, N(0, 1), and every last state, too."""
    rewards = rng.normal(size=worlds.rewards.shape) * worlds.live[:, None]
    return replace(worlds, rewards=rewards, final=rng.normal(size=worlds.final.shape))


def deterministic_twin(worlds: Worlds) -> Worlds:
    """The same worlds where every action leads to its likeliest state."""
    likeliest = worlds.transitions.argmax(axis=-1)
    return replace(worlds, transitions=np.eye(worlds.final.shape[-1])[likeliest])


def random_policy(worlds: Worlds, rng: np.random.Generator, spread: float = 1.0) -> Floats:
    """Log-probabilities [W, H, S, A] from logits N(0, spread²), the same at every step."""
    logits = spread * rng.normal(size=worlds.rewards.shape)
    return over_time(normalised(logits), worlds.horizon)


def over_time(table: Floats, horizon: int) -> Floats:
    """[W, S, A] at every step, [W, H, S, A]."""
    return np.repeat(table[:, None], horizon, axis=1)


def normalised(logits: Floats) -> Floats:
    """Log-softmax over actions, the last axis."""
    top = logits.max(axis=-1, keepdims=True)
    result: Floats = logits - top - np.log(np.exp(logits - top).sum(axis=-1, keepdims=True))
    return result


def occupancy(worlds: Worlds, policy: Floats) -> Floats:
    """d(t, s): probability of standing in s before step t, [W, H, S]."""
    here = np.zeros(worlds.final.shape)
    here[:, START] = 1.0
    w, s, a, _ = worlds.transitions.shape
    flat = worlds.transitions.reshape(w, s * a, s)
    visited = []
    for t in range(worlds.horizon):
        visited.append(here)
        taken = (here[:, :, None] * np.exp(policy[:, t])).reshape(w, 1, s * a)
        here = (taken @ flat)[:, 0]
    return np.stack(visited, axis=1)


def step_weights(worlds: Worlds, policy: Floats) -> Floats:
    """Probability of taking a in s at step t, [W, H, S, A], and 0 where the attempt is over."""
    weights: Floats = (occupancy(worlds, policy) * worlds.live)[..., None] * np.exp(policy)
    return weights

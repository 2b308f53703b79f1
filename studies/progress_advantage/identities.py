"""What the theory says exactly, and where it stops: the largest errors over random worlds."""

from dataclasses import dataclass

import numpy as np

from strop.seeds import generator
from strop.stats.intervals import Estimate, cluster_mean
from studies.progress_advantage import words
from studies.progress_advantage.mdp import (
    Family,
    Floats,
    Worlds,
    deterministic_twin,
    random_policy,
    random_worlds,
    step_weights,
    with_rewards,
)
from studies.progress_advantage.moments import LEAST, Sum, covariance, of_steps, returns
from studies.progress_advantage.soft import kl, optimal_policy, soft_values

BETA = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Identities:
    """Largest absolute errors over all worlds, steps, states and actions, unless said otherwise.

    `advantage`: β log-ratio against Q − V. `drift`: mean of it under the policy against β KL. `centred`:
    mean of the grade less its token KLs. `reward`: β log-ratio + V(s) − V(s') against r, where s' can follow.
    `surprise`: root mean square of that over the steps that the policy takes, by world. `unexplained`:
    Var(return − Σ grades) / Var(return) by world; telescoping promises 0.
    """

    worlds: int
    advantage: float
    drift: float
    centred: float
    reward: float
    surprise: Estimate
    unexplained: Estimate


def identities(n: int) -> tuple[Identities, Identities]:
    """In n stochastic worlds whose every action pays, and in their deterministic twins."""
    rng = generator(0, "progress advantage", "identities")
    worlds = with_rewards(random_worlds(n, rng, Family()), rng)
    reference = random_policy(worlds, rng)
    return check(worlds, reference), check(deterministic_twin(worlds), reference)


def check(worlds: Worlds, reference: Floats, beta: float = BETA) -> Identities:
    """The identities at the optimum of the problem with this reference and beta."""
    policy = optimal_policy(worlds, reference, beta)
    values = soft_values(worlds, policy, reference, beta)
    grades, p = beta * (policy - reference), np.exp(policy)
    centred = grades - beta * words.drift(policy, reference)
    ours, paid = of_steps(worlds, grades), returns(worlds)
    error = Sum(steps=ours.steps - paid.steps, end=-paid.end)
    spread = covariance(worlds, policy, paid, paid)
    known = spread > LEAST
    return Identities(
        worlds=len(worlds.final),
        advantage=_largest(grades - values.advantage),
        drift=_largest((p * values.advantage).sum(axis=-1) - beta * kl(policy, reference)),
        centred=_largest((p * centred).sum(axis=-1)),
        reward=_largest(_residuals(worlds, values.v)),
        surprise=_mean(np.sqrt(luck(worlds, policy, values.v))),
        unexplained=_mean(covariance(worlds, policy, error, error)[known] / spread[known]),
    )


def luck(worlds: Worlds, policy: Floats, v: Floats) -> Floats:
    """Mean over the steps taken of Var(V(s') | s, a), [W]: what telescoping takes for reward."""
    after = v[:, 1:]
    spread = np.stack(
        [
            worlds.expected(after[:, t] ** 2) - worlds.expected(after[:, t]) ** 2
            for t in range(worlds.horizon)
        ],
        axis=1,
    )
    weights = step_weights(worlds, policy)
    total: Floats = (weights * np.maximum(spread, 0)).sum(axis=(1, 2, 3)) / weights.sum(axis=(1, 2, 3))
    return total


def _residuals(worlds: Worlds, v: Floats) -> Floats:
    """V(s') − E[V(s') | s, a] where s' can follow, else 0, [H, W, S, A, S]."""
    possible = worlds.transitions > 0
    return np.stack(
        [
            possible * (v[:, t + 1][:, None, None, :] - worlds.expected(v[:, t + 1])[..., None])
            for t in range(worlds.horizon)
        ]
    )


def _largest(errors: Floats) -> float:
    return float(np.abs(errors).max())


def _mean(by_world: Floats) -> Estimate:
    rng = generator(0, "progress advantage", "identities", "bootstrap")
    return cluster_mean(by_world, range(len(by_world)), rng)

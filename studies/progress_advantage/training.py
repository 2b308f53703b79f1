"""Training on the exact objective, stopped early: plain and natural policy gradient, and clipping alone.

No sampling noise: expectations are sums over the tables. Every way starts at the reference.
"""

from collections.abc import Iterator

import numpy as np

from studies.progress_advantage.mdp import Floats, Worlds, normalised, occupancy
from studies.progress_advantage.moments import covariance, returns
from studies.progress_advantage.soft import plain_values, soft_values


def policy_gradient(worlds: Worlds, reference: Floats, beta: float, rate: float) -> Iterator[Floats]:
    """log π after 1, 2, ... steps of gradient ascent on the regularised objective, softmax logits.

    ∂J/∂θ(t,s,a) = d(t,s) π(a|s) A(t,s,a), A = Q − β log(π/π_ref) − V of the present policy: what is rarely
    visited or rarely done learns late.
    """
    logits = reference
    while True:
        policy = normalised(logits)
        surplus = _surplus(worlds, policy, reference, beta)
        logits = policy + rate * occupancy(worlds, policy)[..., None] * np.exp(policy) * surplus
        yield normalised(logits)


def natural_gradient(worlds: Worlds, reference: Floats, beta: float, rate: float) -> Iterator[Floats]:
    """The same by natural gradient, π ∝ π · exp(rate · A): every state and action learns at one pace."""
    policy = reference
    while True:
        policy = normalised(policy + rate * _surplus(worlds, policy, reference, beta))
        yield policy


def clipped(
    worlds: Worlds, reference: Floats, clip: float, rate: float, inner: int = 8
) -> Iterator[tuple[Floats, Floats]]:
    """log π before and after each update by the clipped objective alone, no KL and so no β.

    Maximises Σ d π_old min(ρ A, clip(ρ, 1 ± clip) A), ρ = π/π_old, by `inner` steps of gradient ascent.
    A is the plain advantage of π_old over the standard deviation of its return (as GRPO scales, with the
    step's own advantage in place of the attempt's). An action whose ρ has passed the clip in the direction
    of A has no gradient.
    """
    policy = reference
    while True:
        old = policy
        advantage = plain_values(worlds, old).advantage / _spread(worlds, old)
        weights = occupancy(worlds, old)[..., None] * np.exp(old) * advantage
        for _ in range(inner):
            ratio = np.exp(policy - old)
            free = np.where(advantage > 0, ratio < 1 + clip, ratio > 1 - clip)
            pull = weights * free * ratio
            policy = normalised(policy + rate * (pull - np.exp(policy) * pull.sum(axis=-1, keepdims=True)))
        yield old, policy


def _surplus(worlds: Worlds, policy: Floats, reference: Floats, beta: float) -> Floats:
    advantage = soft_values(worlds, policy, reference, beta).advantage
    result: Floats = advantage - beta * (policy - reference)
    return result


def _spread(worlds: Worlds, policy: Floats) -> Floats:
    ours = returns(worlds)
    deviation = np.sqrt(np.maximum(covariance(worlds, policy, ours, ours), 1e-12))
    return deviation[:, None, None, None]

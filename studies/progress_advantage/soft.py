"""Backward induction: the KL-regularised optimum, and the value of any policy with or without the KL.

The objective is E[Σ r − β · log(π / π_ref)] with the expectation over policy and world. Its optimum is
V(s) = β log Σ_a π_ref(a|s) exp(Q(s,a) / β), π*(a|s) = π_ref(a|s) exp((Q(s,a) − V(s)) / β), where
Q(s,a) = r(s,a) + E[V(s')].
"""

from dataclasses import dataclass

import numpy as np

from studies.progress_advantage.mdp import Floats, Worlds, normalised


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """`q` [W, H, S, A] and `v` [W, H + 1, S]; v[:, H] is what the last state is worth."""

    q: Floats
    v: Floats

    @property
    def advantage(self) -> Floats:
        """Q(s,a) − V(s), [W, H, S, A]."""
        result: Floats = self.q - self.v[:, :-1, :, None]
        return result


def optimal_policy(worlds: Worlds, reference: Floats, beta: float) -> Floats:
    """log π* [W, H, S, A] of the regularised problem, by soft backward induction."""
    v, steps = worlds.final, []
    for t in reversed(range(worlds.horizon)):
        tilted = reference[:, t] + (worlds.rewards + worlds.expected(v)) / beta
        steps.append(normalised(tilted))
        top = tilted.max(axis=-1)
        v = beta * (top + np.log(np.exp(tilted - top[..., None]).sum(axis=-1)))
    return np.stack(steps[::-1], axis=1)


def soft_values(worlds: Worlds, policy: Floats, reference: Floats, beta: float) -> Values:
    """Q and V of any policy under the regularised objective: V = Σ_a π (Q − β log π/π_ref). No log-sum-exp
    and no optimality is used here, so that the identity can be checked against it."""
    return _evaluate(worlds, policy, beta * (policy - reference))


def plain_values(worlds: Worlds, policy: Floats) -> Values:
    """Q and V of any policy under reward alone; what step values from Monte-Carlo completions estimate."""
    return _evaluate(worlds, policy, np.zeros_like(policy))


def best_values(worlds: Worlds) -> Values:
    """Q and V of the best play under reward alone."""
    v, qs, vs = worlds.final, [], [worlds.final]
    for _ in range(worlds.horizon):
        q = worlds.rewards + worlds.expected(v)
        v = q.max(axis=-1)
        qs.append(q)
        vs.append(v)
    return Values(q=np.stack(qs[::-1], axis=1), v=np.stack(vs[::-1], axis=1))


def kl(policy: Floats, reference: Floats) -> Floats:
    """KL(π ‖ π_ref) at each step and state, [W, H, S], in nats."""
    result: Floats = (np.exp(policy) * (policy - reference)).sum(axis=-1)
    return result


def _evaluate(worlds: Worlds, policy: Floats, paid: Floats) -> Values:
    v, qs, vs = worlds.final, [], [worlds.final]
    for t in reversed(range(worlds.horizon)):
        q = worlds.rewards + worlds.expected(v)
        v = (np.exp(policy[:, t]) * (q - paid[:, t])).sum(axis=-1)
        qs.append(q)
        vs.append(v)
    return Values(q=np.stack(qs[::-1], axis=1), v=np.stack(vs[::-1], axis=1))

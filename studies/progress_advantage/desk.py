"""A world small enough to read: refunds at an order desk, where looking the order up sometimes fails."""

from dataclasses import dataclass

import numpy as np

from studies.progress_advantage.mdp import Floats, Worlds, normalised, over_time
from studies.progress_advantage.soft import kl, optimal_policy, soft_values

STATES = ("new request", "order is refundable", "order is not refundable", "ended well", "ended badly")
ACTIONS = ("look up", "refund", "decline")
HORIZON = 3
BETA = 0.2


def desk() -> Worlds:
    """A new request is refundable in 60 of 100 cases; a look-up fails in 10 and the request stays new."""
    p = np.zeros((1, 5, 3, 5))
    p[0, 0] = [[0.1, 0.54, 0.36, 0, 0], [0, 0, 0, 0.6, 0.4], [0, 0, 0, 0.4, 0.6]]
    p[0, 1] = [[0, 1, 0, 0, 0], [0, 0, 0, 1, 0], [0, 0, 0, 0, 1]]
    p[0, 2] = [[0, 0, 1, 0, 0], [0, 0, 0, 0, 1], [0, 0, 0, 1, 0]]
    p[0, 3, :, 3] = p[0, 4, :, 4] = 1
    final = np.array([[0, 0, 0, 1.0, 0]])
    return Worlds(transitions=p, rewards=np.zeros((1, 5, 3)), final=final, horizon=HORIZON)


def clerk() -> Floats:
    """The reference: refunds readily, looks up seldom, declines hardly ever. log π_ref [1, H, S, A]."""
    habits = np.array([[0.2, 0.6, 0.2], [0.1, 0.7, 0.2], [0.1, 0.6, 0.3], [1, 1, 1], [1, 1, 1]])
    return over_time(normalised(np.log(habits))[None], HORIZON)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One action in one state, at the first step in which an attempt can stand there.

    `reference` and `policy` its probabilities, `q` and `v` soft values, `grade` β log-ratio, `drift` β KL of
    the state.
    """

    state: str
    action: str
    reference: float
    policy: float
    q: float
    v: float
    grade: float
    drift: float


def choices() -> list[Choice]:
    """The optimum of the desk, a line an action."""
    worlds, reference = desk(), clerk()
    policy = optimal_policy(worlds, reference, BETA)
    values = soft_values(worlds, policy, reference, BETA)
    drift = BETA * kl(policy, reference)
    return [
        Choice(
            state=STATES[s],
            action=ACTIONS[a],
            reference=float(np.exp(reference[0, t, s, a])),
            policy=float(np.exp(policy[0, t, s, a])),
            q=float(values.q[0, t, s, a]),
            v=float(values.v[0, t, s]),
            grade=float(BETA * (policy - reference)[0, t, s, a]),
            drift=float(drift[0, t, s]),
        )
        for s, t in ((0, 0), (1, 1), (2, 1))
        for a in range(len(ACTIONS))
    ]

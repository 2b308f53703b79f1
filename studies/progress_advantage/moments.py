"""Exact means, variances and correlations of sums along an attempt, without sampling.

For X = Σ x(t,s,a) + x_end(s) and Y alike, E[X], E[Y], E[XY] from a state follow from those of the next:
E[XY] = Σ_a π (x y + x E[Y'] + y E[X'] + E[X'Y']), the primed from the next state on.
"""

from dataclasses import dataclass

import numpy as np

from studies.progress_advantage.mdp import START, Floats, Worlds

LEAST = 1e-12
"""Variance under which a sum counts as constant: it then has no correlation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sum:
    """What is added up: `steps` x(t,s,a) [W, H, S, A] and `end` [W, S] in the state after the last step."""

    steps: Floats
    end: Floats


def of_steps(worlds: Worlds, steps: Floats) -> Sum:
    """A sum over steps taken; nothing counts once the attempt is over."""
    return Sum(steps=steps * worlds.live[:, None], end=np.zeros_like(worlds.final))


def returns(worlds: Worlds) -> Sum:
    """The attempt's return, Σ r + what its last state is worth."""
    steps = np.repeat(worlds.rewards[:, None], worlds.horizon, axis=1)
    return Sum(steps=steps, end=worlds.final)


def mean(worlds: Worlds, policy: Floats, x: Sum) -> Floats:
    """E[X] of attempts from the start, [W]."""
    m = x.end
    for t in reversed(range(worlds.horizon)):
        m = (np.exp(policy[:, t]) * (x.steps[:, t] + worlds.expected(m))).sum(axis=-1)
    result: Floats = m[:, START]
    return result


def covariance(worlds: Worlds, policy: Floats, x: Sum, y: Sum) -> Floats:
    """Cov(X, Y) over attempts from the start, [W]."""
    mx, my, both = x.end, y.end, x.end * y.end
    for t in reversed(range(worlds.horizon)):
        p, a, b = np.exp(policy[:, t]), x.steps[:, t], y.steps[:, t]
        nx, ny = worlds.expected(mx), worlds.expected(my)
        both = (p * (a * b + a * ny + b * nx + worlds.expected(both))).sum(axis=-1)
        mx, my = (p * (a + nx)).sum(axis=-1), (p * (b + ny)).sum(axis=-1)
    result: Floats = both[:, START] - mx[:, START] * my[:, START]
    return result


def correlation(worlds: Worlds, policy: Floats, x: Sum, y: Sum) -> Floats:
    """Pearson's correlation of X and Y over attempts from the start, [W]; NaN where one is constant."""
    xx, yy = covariance(worlds, policy, x, x), covariance(worlds, policy, y, y)
    known = (xx > LEAST) & (yy > LEAST)
    scale = np.sqrt(np.where(known, xx * yy, 1.0))
    return np.where(known, covariance(worlds, policy, x, y) / scale, np.nan)


def step_correlation(weights: Floats, x: Floats, y: Floats) -> Floats:
    """Pearson's correlation of x and y [W, H, S, A] over steps taken as often as `weights` say, [W]."""
    share = weights / weights.sum(axis=(1, 2, 3), keepdims=True)

    def centre(z: Floats) -> Floats:
        result: Floats = z - (share * z).sum(axis=(1, 2, 3), keepdims=True)
        return result

    a, b = centre(x), centre(y)
    xx, yy, xy = ((share * product).sum(axis=(1, 2, 3)) for product in (a * a, b * b, a * b))
    known = (xx > LEAST) & (yy > LEAST)
    return np.where(known, xy / np.sqrt(np.where(known, xx * yy, 1.0)), np.nan)

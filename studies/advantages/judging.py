"""Planted listwise judgements of many groups at once: latent scores as of `strop.judge.planted`.

    squeeze (quality + place + noise z) + 1/2, cut to [0, 1] and rounded to steps of 0.05

The mean of two orders and its noise are those of `strop.judge.combine`, for all groups in one array.
"""

from dataclasses import dataclass

import numpy as np

from studies.advantages.worlds import Array, Scenarios, World

STEP = 0.05
DECIMALS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdicts:
    """Scores [..., n], NaN where there is none, and the noise that two orders show [...]; with one order 0,
    for there is nothing to see it by.
    """

    scores: Array
    noise: Array


def judged(world: World, given: Scenarios, quality: Array, orders: int, rng: np.random.Generator) -> Verdicts:
    """Groups with true quality [L, R, G, n], each shown `orders` times (1 or 2): in an order drawn for it,
    and in its reverse. The L variants of a run differ in quality only; all else is drawn once for them.
    """
    shape = quality.shape[1:]
    place = np.argsort(rng.random(shape), axis=-1)
    first = world.position * np.linspace(0.5, -0.5, shape[-1])[place]
    calls = [_call(world, given, quality + side, rng) for side in (first, -first)[:orders]]
    scores = np.round(np.mean(calls, axis=0), DECIMALS)
    absent = np.broadcast_to(rng.random(shape) < world.unscored, scores.shape)
    noise = noise_of_two(np.where(absent, np.nan, calls)) if orders > 1 else np.zeros(scores.shape[:-1])
    return Verdicts(scores=np.where(absent, np.nan, scores), noise=noise)


def noise_of_two(calls: Array) -> Array:
    """Standard error of the mean of two calls [2, ..., n], pooled over the n; 0 where nothing is scored."""
    squares = (calls[0] - calls[1]) ** 2 / 2
    scored = np.maximum((~np.isnan(squares)).sum(axis=-1), 1)
    noise: Array = np.sqrt(np.nansum(squares, axis=-1) / scored / 2)
    return noise


def _call(world: World, given: Scenarios, seen: Array, rng: np.random.Generator) -> Array:
    shape = seen.shape[1:]
    seen = seen + given.noise[..., None] * rng.standard_normal(shape)
    scores = np.clip(0.5 + given.squeeze[..., None] * seen, 0.0, 1.0)
    scores = np.where(rng.random(shape) < world.slips, 0.0, scores)
    return np.round(np.rint(scores / STEP) * STEP, DECIMALS)

"""Scenarios with a hidden true quality, and judges whose noise, scale and slips are planted.

An attempt at a scenario is STEPS choices among CHOICES. Every choice has FEATURES numbers that the policy
sees and a worth that it does not: LEARNABLE of the worth's variance is linear in the features, by weights
that are the same in all scenarios, the rest belongs to the scenario alone. What is learnt from one scenario
so acts on all others, as in a language model, and so does noise.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

STEPS, CHOICES, FEATURES = 4, 4, 48
LEARNABLE = 0.7


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of scenario.

    `spread` is the standard deviation of true quality over attempts by chance, on the judge's scale from 0
    to 1; `noise` that of the judge's error, new in every call; `squeeze` what the judge's scale shrinks
    both by. `share` is how common the kind is, relative to the others.
    """

    share: float = 1.0
    spread: float = 0.15
    noise: float = 0.05
    squeeze: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Kinds of scenarios and a judge.

    `position` is what the first place shown has over the last, in equal steps; `slips` the probability that
    an attempt gets 0 in a call, whatever it is worth; `unscored` that it gets no score in any.
    """

    name: str
    words: str
    kinds: Sequence[Kind] = (Kind(),)
    position: float = 0.1
    slips: float = 0.0
    unscored: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenarios:
    """R runs of G scenarios each: features [R, G, STEPS, CHOICES, FEATURES], true worth of each choice
    [R, G, STEPS, CHOICES] with mean 0 over choices, and the judge's noise and squeeze [R, G].
    """

    features: Array
    worth: Array
    noise: Array
    squeeze: Array


WORLDS = (
    World(name="exact", words="no noise, no position effect", kinds=(Kind(noise=0.0),), position=0.0),
    World(name="small noise", words="noise 0.05"),
    World(name="large noise", words="noise 0.3", kinds=(Kind(noise=0.3),)),
    World(
        name="near-ties",
        words="3 of 4 scenarios have a spread of 0.02, the others 0.2",
        kinds=(Kind(share=3, spread=0.02), Kind(spread=0.2)),
    ),
    World(
        name="undecidable",
        words="half of the scenarios have spread 0 and noise 0.3",
        kinds=(Kind(spread=0.0, noise=0.3), Kind()),
    ),
    World(
        name="uneven noise",
        words="noise 0.03 in half of the scenarios, 0.5 in the others",
        kinds=(Kind(noise=0.03), Kind(noise=0.5)),
    ),
    World(
        name="uneven scale",
        words="in half of the scenarios the judge's scale is a fifth as wide",
        kinds=(Kind(squeeze=0.2), Kind()),
    ),
    World(name="places", words="standing first gains 0.5 over standing last", position=0.5),
    World(name="slips", words="1 score in 20 is 0, whatever the attempt is worth", slips=0.05),
    World(
        name="unscored", words="4 attempts in 10 get no score, so that groups differ in size", unscored=0.4
    ),
)


def weights(runs: int, rng: np.random.Generator) -> Array:
    """The hidden weights of one world a run, [runs, FEATURES], of length 1."""
    drawn = rng.standard_normal((runs, FEATURES))
    unit: Array = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
    return unit


def scenarios(world: World, hidden: Array, count: int, rng: np.random.Generator) -> Scenarios:
    """`count` new scenarios a run; the variance of an attempt's quality by chance is its kind's spread²."""
    shape = (len(hidden), count, STEPS, CHOICES)
    features = rng.standard_normal((*shape, FEATURES))
    linear = np.einsum("rgtvd,rd->rgtv", features, hidden)
    worth = np.sqrt(LEARNABLE) * linear + np.sqrt(1 - LEARNABLE) * rng.standard_normal(shape)
    worth = (worth - worth.mean(axis=-1, keepdims=True)) / np.sqrt(STEPS * (1 - 1 / CHOICES))
    share = np.array([kind.share for kind in world.kinds])
    kind = rng.choice(len(share), size=shape[:2], p=share / share.sum())
    spread = np.array([kind.spread for kind in world.kinds])[kind]
    return Scenarios(
        features=features,
        worth=worth * spread[..., None, None],
        noise=np.array([kind.noise for kind in world.kinds])[kind],
        squeeze=np.array([kind.squeeze for kind in world.kinds])[kind],
    )

"""A small policy whose gradient and expected true quality are exact, trained on group advantages.

The policy chooses step by step with softmax probabilities of weights times features. An update is on
policy, where every clipped loss has the gradient of REINFORCE: the mean over groups and attempts of
advantage times gradient of log-probability. Advantages are `strop.training.advantages`.
"""

from dataclasses import dataclass
from math import isnan
from typing import Literal

import numpy as np

from strop.seeds import generator
from strop.training.advantages import Scale, advantages
from studies.advantages.judging import Verdicts, judged
from studies.advantages.worlds import FEATURES, Array, Scenarios, World, scenarios, weights

CALLS, UPDATES = 8, 40
HELD_OUT = 128
BETA1, BETA2, TINY = 0.9, 0.999, 1e-8

Optimizer = Literal["adam", "sgd"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How scores are asked for and made into advantages.

    `calls` judge calls an update are spent on calls / orders groups of `attempts`. A group's noise floor
    is `floor`, or `times_noise` times the noise its own two orders show where that is more.
    """

    scale: Scale = "std"
    orders: int = 2
    attempts: int = 8
    times_noise: float = 0.0
    floor: float = 0.0
    leave_one_out: bool = False
    calls: int = CALLS
    optimizer: Optimizer = "adam"


@dataclass(slots=True)
class Ascent:
    """Weights [L, R, FEATURES] going up a gradient, each of L learning rates [L, 1, 1] for each of R runs."""

    rates: Array
    optimizer: Optimizer
    weights: Array
    first: Array
    second: Array
    steps: int = 0

    def step(self, gradient: Array) -> None:
        """One step: Adam (arXiv 1412.6980), or plain gradient ascent."""
        self.steps += 1
        if self.optimizer == "sgd":
            self.weights = self.weights + self.rates * gradient
            return
        self.first = BETA1 * self.first + (1 - BETA1) * gradient
        self.second = BETA2 * self.second + (1 - BETA2) * gradient**2
        mean = self.first / (1 - BETA1**self.steps)
        spread = np.sqrt(self.second / (1 - BETA2**self.steps))
        self.weights = self.weights + self.rates * mean / (spread + TINY)


def learn(
    world: World, setting: Setting, rates: tuple[float, ...], runs: int, phase: str, looks: int = 1
) -> Array:
    """Share of the best true quality that the policy reaches, at `looks` even points: [looks, L, runs].

    0 is what chance reaches, 1 the best choice in every step of every held-out scenario. Runs of the same
    phase see the same worlds whatever the setting, and settings with as many groups the same scenarios.
    """
    ways = ("weights", "scenarios", "attempts", "judge", "held-out")
    rng = {way: generator(0, "advantages", phase, world.name, way) for way in ways}
    hidden = weights(runs, rng["weights"])
    held_out = scenarios(world, hidden, HELD_OUT, rng["held-out"])
    start = np.zeros((len(rates), runs, FEATURES))
    ascent = Ascent(np.array(rates)[:, None, None], setting.optimizer, start, start, start)
    seen = []
    for update in range(1, UPDATES + 1):
        given = scenarios(world, hidden, setting.calls // setting.orders, rng["scenarios"])
        odds = probabilities(ascent.weights, given)
        chosen = choices(odds, setting.attempts, rng["attempts"])
        verdicts = judged(world, given, quality(given, chosen), setting.orders, rng["judge"])
        ascent.step(gradient(given, odds, chosen, group_advantages(verdicts, setting)))
        if update * looks % UPDATES == 0:
            seen.append(share_of_best(ascent.weights, held_out))
    return np.array(seen)


def probabilities(policy: Array, given: Scenarios) -> Array:
    """Of every choice, [L, R, G, STEPS, CHOICES]."""
    logits = np.einsum("rgtvd,lrd->lrgtv", given.features, policy)
    raised = np.exp(logits - logits.max(axis=-1, keepdims=True))
    odds: Array = raised / raised.sum(axis=-1, keepdims=True)
    return odds


def choices(odds: Array, attempts: int, rng: np.random.Generator) -> Array:
    """Attempts drawn from the policy, one-hot [L, R, G, n, STEPS, CHOICES]; the L share their luck."""
    _, runs, groups, steps, many = odds.shape
    luck = rng.random((runs, groups, attempts, steps, 1))
    number = (luck > np.cumsum(odds, axis=-1)[:, :, :, None, :, :-1]).sum(axis=-1)
    one_hot: Array = np.eye(many)[number]
    return one_hot


def quality(given: Scenarios, chosen: Array) -> Array:
    """True quality of every attempt, [L, R, G, n]; chance has mean 0."""
    true: Array = np.einsum("lrgntv,rgtv->lrgn", chosen, given.worth)
    return true


def group_advantages(verdicts: Verdicts, setting: Setting) -> Array:
    """strop's advantages of every group, [L, R, G, n]."""
    values = np.empty_like(verdicts.scores)
    for place in np.ndindex(verdicts.noise.shape):
        scores = [None if isnan(score) else score for score in verdicts.scores[place].tolist()]
        values[place] = advantages(
            scores,
            scale=setting.scale,
            leave_one_out=setting.leave_one_out,
            noise_floor=max(setting.floor, setting.times_noise * float(verdicts.noise[place])),
        ).values
    return values


def gradient(given: Scenarios, odds: Array, chosen: Array, advantage: Array) -> Array:
    """Mean over groups and attempts of advantage times the gradient of log-probability, [L, R, FEATURES]."""
    groups, attempts = advantage.shape[2:]
    pull = np.einsum("lrgn,lrgntv->lrgtv", advantage, chosen)
    pull -= advantage.sum(axis=-1)[..., None, None] * odds
    mean: Array = np.einsum("lrgtv,rgtvd->lrd", pull, given.features) / (groups * attempts)
    return mean


def share_of_best(policy: Array, given: Scenarios) -> Array:
    """Expected true quality over that of the best choices, both means over scenarios, [L, R]."""
    reached = (probabilities(policy, given) * given.worth).sum(axis=(-2, -1)).mean(axis=-1)
    best = given.worth.max(axis=-1).sum(axis=-1).mean(axis=-1)
    share: Array = reached / best
    return share

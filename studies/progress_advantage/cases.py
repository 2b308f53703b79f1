"""A policy that acts, a policy and a reference that are read, and what their grade is worth."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from strop.seeds import generator
from strop.stats.intervals import Estimate, cluster_mean
from studies.progress_advantage.attempts import draw
from studies.progress_advantage.mdp import Family, Floats, Worlds, random_policy, random_worlds, step_weights
from studies.progress_advantage.moments import correlation, mean, of_steps, returns, step_correlation
from studies.progress_advantage.scores import CENTRED, GRADE, LOGPROB, centred, grade
from studies.progress_advantage.soft import optimal_policy, plain_values
from studies.progress_advantage.uses import RESAMPLES, gap_closed, summed

ATTEMPTS = 8
BETA = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Attempts of `acting` graded by `policy` against `reference`; `truth` is the optimal soft advantage."""

    worlds: Worlds
    acting: Floats
    policy: Floats
    reference: Floats
    truth: Floats
    beta: float = BETA


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One setting. All but `picked` is exact in each world; intervals are over worlds.

    `at` where it stands on the axis of the figure. `step`: correlation of grade and optimal soft advantage
    over steps taken; `plain`: the same with the acting policy's Q − V under reward alone. `attempt`:
    correlation over attempts at one start of a score's sum with success, by score; `length`: with the number
    of steps. `picked`: share of the gap from a random pick to the oracle that the best of 8 closes, by score.
    `centring` and `above`: `attempt` of the centred grade less the plain one's, and of the plain grade less
    the policy log-prob's, world by world.
    """

    label: str
    at: float
    success: Estimate
    step: Estimate
    plain: Estimate
    attempt: Mapping[str, Estimate]
    length: Mapping[str, Estimate]
    picked: Mapping[str, Estimate]
    centring: Estimate
    above: Estimate


def ground(n: int, family: Family | None = None) -> tuple[Worlds, Floats]:
    """n worlds and their reference policies."""
    rng = generator(0, "progress advantage", "worlds")
    worlds = random_worlds(n, rng, family or Family())
    return worlds, random_policy(worlds, rng)


def at_optimum(worlds: Worlds, reference: Floats, beta: float = BETA) -> Case:
    """The case of the theory: the optimum's own attempts against its own reference."""
    policy = optimal_policy(worlds, reference, beta)
    truth = grade(policy, reference, beta)
    return Case(worlds=worlds, acting=policy, policy=policy, reference=reference, truth=truth, beta=beta)


def row(label: str, at: float, case: Case) -> Row:
    """All measures of one case."""
    tables = {
        GRADE: grade(case.policy, case.reference, case.beta),
        CENTRED: centred(case.policy, case.reference, case.beta),
        LOGPROB: case.policy,
    }
    worlds, acting = case.worlds, case.acting
    paid, steps = returns(worlds), of_steps(worlds, np.ones_like(acting))
    sums = {name: of_steps(worlds, table) for name, table in tables.items()}
    weights = step_weights(worlds, acting)
    attempts = draw(worlds, acting, ATTEMPTS, generator(0, "progress advantage", "attempts"))
    by_world = {name: correlation(worlds, acting, x, paid) for name, x in sums.items()}
    return Row(
        label=label,
        at=at,
        success=over_worlds(mean(worlds, acting, paid)),
        step=over_worlds(step_correlation(weights, tables[GRADE], case.truth)),
        plain=over_worlds(step_correlation(weights, tables[GRADE], plain_values(worlds, acting).advantage)),
        attempt={name: over_worlds(found) for name, found in by_world.items()},
        length={name: over_worlds(correlation(worlds, acting, x, steps)) for name, x in sums.items()},
        picked={
            name: gap_closed(summed(attempts, table), attempts.success) for name, table in tables.items()
        },
        centring=over_worlds(by_world[CENTRED] - by_world[GRADE]),
        above=over_worlds(by_world[GRADE] - by_world[LOGPROB]),
    )


def over_worlds(values: Floats) -> Estimate:
    """Mean over the worlds that have the number, with a bootstrap interval."""
    known = values[np.isfinite(values)]
    rng = generator(0, "progress advantage", "bootstrap", "worlds")
    return cluster_mean(known, range(len(known)), rng, RESAMPLES)

"""The study's numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from strop.seeds import generator
from strop.stats.intervals import Estimate
from studies.progress_advantage import sweeps
from studies.progress_advantage.aggregators import Aggregation, aggregations
from studies.progress_advantage.attempts import draw, first_bad
from studies.progress_advantage.cases import ATTEMPTS, Case, Row, at_optimum, ground, over_worlds
from studies.progress_advantage.desk import Choice, choices
from studies.progress_advantage.identities import Identities, identities
from studies.progress_advantage.mdp import START, Family, Floats, step_weights
from studies.progress_advantage.moments import LEAST
from studies.progress_advantage.scores import BY_STEP, GRADE, blind, scores
from studies.progress_advantage.soft import best_values, soft_values
from studies.progress_advantage.sweeps import Drift
from studies.progress_advantage.uses import RANDOM, Use, attribute, failures, order, predict, select, totals

BAD = 0.1
"""A step is bad that gives away this much of the chance of success under best play."""
WITH_VALUE = "progress advantage + value of the start"


@dataclass(frozen=True, slots=True, kw_only=True)
class Uses:
    """The three uses in one family of worlds. `luckless` failures have no bad step and are excluded from
    `first` (the first bad step) and `costliest` (the one that gave away most)."""

    name: str
    worlds: int
    success: float
    select: Use
    order: Use
    predict: Use
    first: Use
    costliest: Use
    failures: int
    luckless: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """The whole study. `spread`: standard deviation of the log-ratio over steps of the optimum, in nats."""

    worlds: int
    desk: Sequence[Choice]
    stochastic: Identities
    deterministic: Identities
    spread: Estimate
    sweeps: Mapping[str, Sequence[Row]]
    drifts: Sequence[Drift]
    uses: Sequence[Uses]
    aggregations: Sequence[Aggregation]


def results(n: int) -> Results:
    """Everything, with n worlds a setting; aggregators, token by token, on a third of them."""
    stochastic, deterministic = identities(n)
    clipping, drifts = sweeps.by_clipping(n)
    return Results(
        worlds=n,
        desk=choices(),
        stochastic=stochastic,
        deterministic=deterministic,
        spread=_spread(at_optimum(*ground(n))),
        sweeps={
            "chance": sweeps.by_chance(n),
            "policy gradient": sweeps.by_training(n, natural=False),
            "natural gradient": sweeps.by_training(n, natural=True),
            "beta": sweeps.by_beta(n),
            "clipping": clipping,
            "reference": sweeps.by_reference(n),
            "noise": sweeps.by_noise(n),
            "author": sweeps.by_author(n),
        },
        drifts=drifts,
        uses=[uses("stochastic", n, Family()), uses("deterministic", n, Family(chance=0.0))],
        aggregations=aggregations(max(n // 3, 2)),
    )


def uses(name: str, n: int, family: Family) -> Uses:
    """Select, predict and attribute on the optimum's own attempts, every score beside the grade."""
    case = at_optimum(*ground(n, family))
    rng = generator(0, "progress advantage", "uses", name)
    attempts = draw(case.worlds, case.acting, ATTEMPTS, rng)
    tables = scores(case.worlds, case.policy, case.reference, case.beta)
    guesses = {name: tables[name] for name in BY_STEP} | blind(tables)
    summed = totals(attempts, tables) | {RANDOM: rng.random(attempts.success.shape)}
    values = soft_values(case.worlds, case.policy, case.reference, case.beta)
    best = best_values(case.worlds)
    regret = best.v[:, :-1, :, None] - best.q
    failed, luckless = failures(attempts, regret, lambda r: first_bad(r, BAD))
    dearest, _ = failures(attempts, regret, _costliest)
    return Uses(
        name=name,
        worlds=n,
        success=float(attempts.success.mean()),
        select=select(attempts, summed),
        order=order(attempts, summed),
        predict=predict(attempts, summed | {WITH_VALUE: summed[GRADE] + values.v[:, 0, START, None]}),
        first=attribute(attempts, guesses, failed),
        costliest=attribute(attempts, guesses, dearest),
        failures=len(failed),
        luckless=luckless,
    )


def _costliest(regret: Floats) -> int | None:
    return int(regret.argmax()) if regret.max() >= BAD else None


def _spread(case: Case) -> Estimate:
    weights = step_weights(case.worlds, case.acting)
    weights = weights / weights.sum(axis=(1, 2, 3), keepdims=True)
    ratio = case.policy - case.reference
    mean = (weights * ratio).sum(axis=(1, 2, 3))
    variance = (weights * ratio**2).sum(axis=(1, 2, 3)) - mean**2
    return over_worlds(np.sqrt(np.maximum(variance, LEAST)))

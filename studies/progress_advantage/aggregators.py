"""Ways to add tokens to steps and steps to attempts: what the theory's sum is worth beside the others."""

from dataclasses import dataclass

from strop.grader.ratio import Aggregator, Reading
from strop.seeds import generator
from strop.stats.agreement import pairwise_agreement
from strop.stats.intervals import Estimate
from studies.progress_advantage import words
from studies.progress_advantage.attempts import Attempts, draw
from studies.progress_advantage.cases import ATTEMPTS, BETA, Case, at_optimum, ground, over_worlds
from studies.progress_advantage.mdp import step_weights
from studies.progress_advantage.moments import step_correlation
from studies.progress_advantage.uses import RESAMPLES, rated, summed

TOKENS: tuple[tuple[Aggregator, Reading], ...] = (
    ("sum", "aggregate-of-ratios"),
    ("mean", "aggregate-of-ratios"),
    ("last", "aggregate-of-ratios"),
    ("min", "aggregate-of-ratios"),
    ("min", "difference-of-aggregates"),
    ("max", "aggregate-of-ratios"),
    ("max", "difference-of-aggregates"),
)
STEPS: tuple[Aggregator, ...] = ("sum", "mean", "last", "min", "max")


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregation:
    """One way. `step`: correlation of the step's grade with the optimal soft advantage. `order`: share of
    pairs of attempts at one start, one a success and one a failure, that the total orders rightly."""

    tokens: Aggregator
    reading: Reading
    steps: Aggregator
    step: Estimate
    order: Estimate


def aggregations(n: int) -> list[Aggregation]:
    """Every way over tokens with steps summed, and every way over steps with tokens summed."""
    case = at_optimum(*ground(n))
    attempts = draw(case.worlds, case.acting, ATTEMPTS, generator(0, "progress advantage", "aggregators"))
    rows = [_aggregation(case, attempts, tokens, reading, "sum") for tokens, reading in TOKENS]
    rows += [_aggregation(case, attempts, *TOKENS[0], how) for how in STEPS if how != "sum"]
    return rows


def _aggregation(
    case: Case, attempts: Attempts, tokens: Aggregator, reading: Reading, steps: Aggregator
) -> Aggregation:
    table = BETA * words.grades(case.policy, case.reference, tokens, reading)
    totals = summed(attempts, table, steps)
    rng = generator(0, "progress advantage", "order")
    weights = step_weights(case.worlds, case.acting)
    return Aggregation(
        tokens=tokens,
        reading=reading,
        steps=steps,
        step=over_worlds(step_correlation(weights, table, case.truth)),
        order=pairwise_agreement(rated(attempts, totals), rng, RESAMPLES),
    )

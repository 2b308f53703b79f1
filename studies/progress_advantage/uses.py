"""The three uses on attempts whose truth is known: select, predict, attribute. Intervals resample worlds."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from strop.grader.ratio import Aggregator, trajectory_grade
from strop.seeds import generator
from strop.stats.agreement import RatedGroup, agreement_difference, pairwise_agreement
from strop.stats.aurocs import resampled_aurocs
from strop.stats.intervals import Estimate, cluster_mean, cluster_ratio
from studies.progress_advantage.attempts import Attempts
from studies.progress_advantage.mdp import Floats

RESAMPLES = 1000
RANDOM = "random"


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """One use: an estimate by score, and the first score less each of the others, resampled together."""

    results: Mapping[str, Estimate]
    differences: Mapping[str, Estimate]


def summed(attempts: Attempts, table: Floats, how: Aggregator = "sum") -> Floats:
    """Trajectory grades [W, N] from step scores, by the grader's own aggregation."""
    return attempts.totals(table, lambda steps: trajectory_grade(steps.tolist(), how))


def picks(totals: Floats, success: Floats) -> Floats:
    """Success of the attempt with the largest total, [W]; attempts that tie share the pick."""
    best = np.isclose(totals, totals.max(axis=1, keepdims=True), rtol=0, atol=1e-9)
    result: Floats = (best * success).sum(axis=1) / best.sum(axis=1)
    return result


def gap_closed(totals: Floats, success: Floats) -> Estimate:
    """(picked − random) / (oracle − random) over worlds, in (−∞, 1]; 0 is a random pick."""
    random, oracle = success.mean(axis=1), success.max(axis=1)
    gained = picks(totals, success) - random
    share = cluster_ratio(gained, oracle - random, _rng("gap"), RESAMPLES)
    return replace(share, n=success.size)


def totals(attempts: Attempts, tables: Mapping[str, Floats]) -> dict[str, Floats]:
    """The sum of each score over each attempt's steps."""
    return {name: summed(attempts, table) for name, table in tables.items()}


def select(attempts: Attempts, scores: Mapping[str, Floats]) -> Use:
    """Success of the attempt picked among the N of a world, by totals [W, N]; and of the oracle's pick.
    A random pick is worth the world's mean, exactly."""
    found = {name: picks(score, attempts.success) for name, score in scores.items()}
    found[RANDOM] = attempts.success.mean(axis=1)
    found["oracle"] = attempts.success.max(axis=1)
    return _use(found, lambda values: cluster_mean(values, range(len(values)), _rng("select"), RESAMPLES))


def predict(attempts: Attempts, scores: Mapping[str, Floats]) -> Use:
    """AUROC of success over all worlds together, where a sum lacks each world's own value."""
    w, n = attempts.success.shape
    flat = {name: score.ravel() for name, score in scores.items()}
    clusters = np.repeat(np.arange(w), n).tolist()
    found = resampled_aurocs(attempts.success.ravel(), flat, clusters, _rng("predict"), RESAMPLES)
    first = next(iter(scores))
    return Use(
        results={name: found.estimate(name) for name in scores},
        differences={name: found.difference(first, name) for name in scores if name != first},
    )


def order(attempts: Attempts, scores: Mapping[str, Floats]) -> Use:
    """Share of pairs of one world, one a success and one a failure, that a score orders rightly; ties
    count half."""
    groups = {name: rated(attempts, score) for name, score in scores.items()}
    first = next(iter(scores))
    return Use(
        results={name: pairwise_agreement(some, _rng("order"), RESAMPLES) for name, some in groups.items()},
        differences={
            name: agreement_difference(groups[first], some, _rng("order"), RESAMPLES)
            for name, some in groups.items()
            if name != first
        },
    )


def rated(attempts: Attempts, score: Floats) -> list[RatedGroup]:
    """One group a world: its attempts' totals and their success."""
    # Rounded, so that totals that differ by the order of their additions tie.
    return [
        RatedGroup(scores=t.tolist(), truths=s.tolist())
        for t, s in zip(score.round(9), attempts.success, strict=True)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A failed attempt and its culprit."""

    world: int
    attempt: int
    step: int


def failures(
    attempts: Attempts, regret: Floats, culprit: Callable[[Floats], int | None]
) -> tuple[list[Failure], int]:
    """Failed attempts with the culprit that `culprit` finds in the regrets of their steps, and how many
    failed without one: bad luck alone."""
    steps = attempts.steps(regret)
    found, luckless = [], 0
    for w, n in np.argwhere(attempts.success == 0):
        step = culprit(steps[w][n])
        if step is None:
            luckless += 1
        else:
            found.append(Failure(world=int(w), attempt=int(n), step=step))
    return found, luckless


def attribute(attempts: Attempts, tables: Mapping[str, Floats], failed: list[Failure]) -> Use:
    """Share of failures whose culprit has the lowest score; k steps that tie earn 1/k. Beside them the
    first and the last step."""
    clusters = [f.world for f in failed]
    found = {name: _hits(attempts.steps(table), failed) for name, table in tables.items()}
    lengths = [int(attempts.lengths[f.world, f.attempt]) for f in failed]
    found["first step"] = np.array([float(f.step == 0) for f in failed])
    found["last step"] = np.array([float(f.step == n - 1) for f, n in zip(failed, lengths, strict=True)])
    return _use(found, lambda hits: cluster_mean(hits, clusters, _rng("attribute"), RESAMPLES))


def _hits(steps: list[list[Floats]], failed: list[Failure]) -> Floats:
    hits = []
    for f in failed:
        grades = steps[f.world][f.attempt]
        lowest = np.flatnonzero(np.isclose(grades, grades.min(), rtol=0, atol=1e-9))
        hits.append((f.step in lowest) / len(lowest))
    return np.array(hits)


def _use(found: Mapping[str, Floats], estimate: Callable[[Floats], Estimate]) -> Use:
    first = next(iter(found))
    return Use(
        results={name: estimate(values) for name, values in found.items()},
        differences={name: estimate(found[first] - found[name]) for name in found if name != first},
    )


def _rng(name: str) -> np.random.Generator:
    return generator(0, "progress advantage", "bootstrap", name)

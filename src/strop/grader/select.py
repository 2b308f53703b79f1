"""Best of N: the truth of the attempt that the grade would pick, beside what picks blindly."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from strop.grader.baselines import SHORT, RunScore, parted, total
from strop.grader.comparison import Comparison
from strop.grader.grade import Graded
from strop.grader.ratio import Floats
from strop.stats.best_of import best_of_curve
from strop.stats.columns import resampled
from strop.stats.intervals import RESAMPLES, Estimate, cluster_mean

DEFAULT = "largest sum"
ORACLE, RANDOM = "oracle", "random"
NULLS: Mapping[str, RunScore] = {
    "shortest": SHORT["fewer tokens"],
    "longest": SHORT["more tokens"],
    "policy log-prob": SHORT["policy log-prob"],
}
Choice = Sequence[Graded]
"""The attempts at one scenario, two or more, all with grades and truth."""


def select(
    graded: Sequence[Graded],
    rng: np.random.Generator,
    *,
    resamples: int = RESAMPLES,
    other: Mapping[str, RunScore] | None = None,
    nulls: Mapping[str, RunScore] = NULLS,
) -> Comparison:
    """Mean truth of the attempt picked in each scenario that has at least two graded ones with truth.

    Exact: attempts that tie for the pick share it, and a random pick is worth the scenario's mean.
    `oracle` picks by truth, the ceiling; it and `other` scores stand among the results and are not
    claims. `nulls`, and the random pick, are what has to be beaten; those that the grades cannot give say so.
    Intervals resample scenarios.
    """
    some = choices(graded)
    nulls, lacking = parted(nulls, graded)
    ours = {DEFAULT: total(lambda s: s.grade), **(other or {}), ORACLE: truth}
    against = {RANDOM: lambda g: 0.0, **nulls}  # noqa: ARG005
    found = {name: _picked(some, score) for name, score in {**ours, **against}.items()}

    def mean(values: Floats) -> Estimate:
        return cluster_mean(values, range(len(values)), rng, resamples)

    left = len(graded) - sum(map(len, some))
    return Comparison(
        measure="mean truth of the attempt picked",
        default=DEFAULT,
        results={name: mean(found[name]) for name in ours},
        nulls={name: mean(found[name]) for name in against},
        differences={name: mean(found[DEFAULT] - found[name]) for name in against},
        excluded={"ungraded, without truth or alone": left} if left else {},
    ).lacking(lacking)


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves:
    """Best of k = 1 … N: `means` by score, one estimate for each k. Of best of N: `gains` over a random
    pick, and `closed`, the share of what the oracle gains over it. `excluded` counts scenarios."""

    size: int
    scenarios: int
    means: Mapping[str, Sequence[Estimate]]
    gains: Mapping[str, Estimate]
    closed: Mapping[str, Estimate]
    excluded: Mapping[str, int]

    def to_json(self) -> dict[str, Any]:
        """All fields, estimates as objects; `curve[name][k − 1]` is best of k."""
        return {
            "n_attempts": self.size,
            "scenarios": self.scenarios,
            "curve": {name: [e.to_json() for e in line] for name, line in self.means.items()},
            "gain_over_random": {name: e.to_json() for name, e in self.gains.items()},
            "oracle_gain_closed": {name: e.to_json() for name, e in self.closed.items()},
            "excluded": dict(self.excluded),
        }


def curves(
    graded: Sequence[Graded],
    scores: Mapping[str, RunScore],
    rng: np.random.Generator,
    *,
    resamples: int = RESAMPLES,
) -> Curves:
    """The whole best-of-N curve of each score, of the default, of the oracle and of a random pick.

    N is the most common number of usable attempts at a scenario (the larger on ties); scenarios with
    fewer are left out, so that every point rests on the same ones, and those with more use them all. So are
    scores that the grades cannot give.
    Exact over draws (see `strop.stats.best_of`); intervals resample scenarios, all scores together.
    """
    every, (scores, _) = choices(graded), parted(scores, graded)
    sizes = Counter(map(len, every))
    size = max(sizes, key=lambda n: (sizes[n], n), default=0)
    some = [choice for choice in every if len(choice) >= size]
    named = {DEFAULT: total(lambda s: s.grade), ORACLE: truth, RANDOM: _nothing, **scores}
    lines = {name: _lines(some, score, size) for name, score in named.items()}
    ones, draws = np.ones(len(some)), resampled(len(some), rng, resamples)
    last = {name: line[:, -1] if size else np.zeros(0) for name, line in lines.items()}
    return Curves(
        size=size,
        scenarios=len(some),
        means={name: [draws.mean(column, ones) for column in line.T] for name, line in lines.items()},
        gains={name: draws.mean(v - last[RANDOM], ones) for name, v in last.items() if name != RANDOM},
        closed={
            name: draws.share(v - last[RANDOM], last[ORACLE] - last[RANDOM])
            for name, v in last.items()
            if name not in (RANDOM, ORACLE)
        },
        excluded={f"fewer than {size} attempts": len(every) - len(some)} if len(every) > len(some) else {},
    )


def choices(graded: Sequence[Graded]) -> list[Choice]:
    """The scenarios in which there is something to choose."""
    scenarios: dict[str, list[Graded]] = {}
    for g in graded:
        if g.steps and g.truth is not None:
            scenarios.setdefault(g.scenario_id, []).append(g)
    return [some for some in scenarios.values() if len(some) > 1]


def picked(choice: Choice, scores: Floats) -> float:
    """Truth of the attempt with the highest of `scores` [N]; attempts that tie share the pick."""
    return float(truths(choice)[scores == scores.max()].mean())


def truths(choice: Choice) -> Floats:
    """Truth of each attempt, [N]."""
    return np.array([truth(g) for g in choice])


def truth(graded: Graded) -> float:
    """The attempt's truth, as a score that knows it."""
    return float(graded.truth or 0.0)


def _nothing(_graded: Graded) -> float:
    return 0.0


def _picked(some: Sequence[Choice], score: RunScore) -> Floats:
    return np.array([picked(c, np.array([score(g) for g in c])) for c in some], dtype=np.float64)


def _lines(some: Sequence[Choice], score: RunScore, size: int) -> Floats:
    lines = [best_of_curve([score(g) for g in choice], truths(choice), size) for choice in some]
    return np.array(lines, dtype=np.float64).reshape(len(some), size)

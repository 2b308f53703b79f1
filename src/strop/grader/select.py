"""Best of N: the truth of the attempt that the grade would pick, beside what picks blindly."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from strop.grader.comparison import Comparison
from strop.grader.grade import Graded
from strop.grader.ratio import Floats
from strop.stats.intervals import RESAMPLES, Estimate, cluster_mean

DEFAULT = "largest sum"
Preference = Callable[[Graded], float]


def select(graded: Sequence[Graded], rng: np.random.Generator, *, resamples: int = RESAMPLES) -> Comparison:
    """Mean truth of the attempt picked in each scenario that has at least two graded ones with truth.

    Exact: attempts that tie for the pick share it, and a random pick is worth the scenario's mean.
    `oracle` picks by truth, the ceiling; it stands among the results and is not a claim. Nulls:
    random, shortest and longest in tokens, the largest policy log-prob. Intervals resample scenarios.
    """
    usable = [g for g in graded if g.steps and g.truth is not None]
    scenarios: dict[str, list[Graded]] = {}
    for g in usable:
        scenarios.setdefault(g.scenario_id, []).append(g)
    choices = [some for some in scenarios.values() if len(some) > 1]
    picked = {name: _picks(choices, prefer) for name, prefer in _NULLS.items()}
    ours, oracle = _picks(choices, _total), _picks(choices, _truth)

    def mean(values: Floats) -> Estimate:
        return cluster_mean(values, range(len(values)), rng, resamples)

    left = len(graded) - sum(map(len, choices))
    return Comparison(
        measure="mean truth of the attempt picked",
        default=DEFAULT,
        results={DEFAULT: mean(ours), "oracle": mean(oracle)},
        nulls={name: mean(values) for name, values in picked.items()},
        differences={name: mean(ours - values) for name, values in picked.items()},
        excluded={"ungraded, without truth or alone": left} if left else {},
    )


def _total(graded: Graded) -> float:
    return float(graded.sum or 0.0)


def _truth(graded: Graded) -> float:
    return float(graded.truth or 0.0)


def _tokens(graded: Graded) -> float:
    return float(sum(s.n_tokens for s in graded.steps))


_NULLS: Mapping[str, Preference] = {
    "random": lambda g: 0.0,  # noqa: ARG005
    "shortest": lambda g: -_tokens(g),
    "longest": _tokens,
    "policy log-prob": lambda g: sum(s.policy_logprob for s in g.steps),
}


def _picks(choices: Sequence[Sequence[Graded]], prefer: Preference) -> Floats:
    return np.array([_pick(some, prefer) for some in choices], dtype=np.float64)


def _pick(attempts: Sequence[Graded], prefer: Preference) -> float:
    values = [prefer(g) for g in attempts]
    return float(np.mean([_truth(g) for g, v in zip(attempts, values, strict=True) if v == max(values)]))

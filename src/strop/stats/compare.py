"""Differences between two runs over the same scenarios."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from strop.errors import InputError
from strop.stats.intervals import (
    ALIKE,
    LEVEL,
    RESAMPLES,
    Estimate,
    finite_array,
    from_resamples,
    too_few,
    undefined,
    wilson_bounds,
)

Outcomes = Mapping[str, Sequence[float]]
"""Outcomes in [0, 1] by scenario, one for each attempt."""


def paired_difference(
    before: Outcomes,
    after: Outcomes,
    rng: np.random.Generator,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
) -> Estimate:
    """Mean over scenarios of (share after - share before), bootstrapped by scenario, in [-1, 1].

    A scenario weighs the same however many attempts it has. `n` and `clusters` count the scenarios
    with attempts on both sides, `excluded` those with attempts on one side only. Where all scenarios
    moved alike by -1, 0 or 1 the bounds come from Wilson's for the shares that rose and fell; alike
    by anything else, or fewer than two scenarios: no number.
    """
    shared = [name for name in before if len(before[name]) and len(after.get(name, ()))]
    excluded = len({*before, *after}) - len(shared)
    moved = _means(after, shared) - _means(before, shared)
    k = len(moved)
    if k < 2:
        estimate = too_few(k, k)
    elif np.ptp(moved) < ALIKE:
        estimate = _uniform(float(moved[0]), k, level)
    else:
        samples = moved[rng.integers(k, size=(resamples, k))].mean(axis=1)
        estimate = from_resamples(float(moved.mean()), samples, n=k, clusters=k, level=level)
    return replace(estimate, excluded=excluded)


def _means(outcomes: Outcomes, scenarios: Sequence[str]) -> NDArray[np.float64]:
    means = [finite_array(outcomes[name], f"scenario {name}").mean() for name in scenarios]
    shares = np.asarray(means, dtype=np.float64)
    if ((shares < 0) | (shares > 1)).any():
        raise InputError("an outcome outside [0, 1]; a share cannot be made of it")
    return shares


def _uniform(moved: float, k: int, level: float) -> Estimate:
    if moved not in (-1.0, 0.0, 1.0):
        return undefined("scenarios do not differ", n=k, clusters=k)
    rose = wilson_bounds(float(moved > 0), k, level)
    fell = wilson_bounds(float(moved < 0), k, level)
    return Estimate(
        estimate=moved,
        low=rose[0] - fell[1],
        high=rose[1] - fell[0],
        n=k,
        method=f"Wilson {level:.0%} of rises and falls; scenarios do not differ",
        clusters=k,
    )

"""How a grade serves as a forecast: precision, risk and coverage, calibration, and thresholds that keep
a promise. Every map and threshold is fitted on other scenarios than it is measured on."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from strop.grader.baselines import RunScore, parted, total
from strop.grader.folds import scenario_folds
from strop.grader.grade import Graded
from strop.grader.predict import DEFAULT, RANDOM, successes, values
from strop.grader.promise import promise
from strop.grader.ratio import Floats
from strop.stats.calibration import Map, expected_calibration_error, isotonic, platt
from strop.stats.detection import auprc
from strop.stats.intervals import Statistic, cluster_bootstrap, cluster_mean, undefined
from strop.stats.risk import area, rejection_ratio, risks

RESAMPLES, BESIDE = 500, 200
"""Resamples for the default and, there being many of them, for each of the scores beside it."""
RATES = (0.05, 0.1, 0.2)
COVERAGES = (0.1, 0.25, 0.5, 0.75, 1.0)
MAPS: Mapping[str, Callable[[Floats, Floats], Map]] = {"platt": platt, "isotonic": isotonic}


def reliability(
    graded: Sequence[Graded],
    rng: np.random.Generator,
    *,
    success: float = 1.0,
    scores: Mapping[str, RunScore],
    resamples: int = RESAMPLES,
) -> dict[str, Any]:
    """Beside the AUROC of `predict`, for the sum of grades and every other of `scores`: `auprc` (chance: the
    share of successes) and `rejection` (1 the oracle, 0 blind). For the sum alone: `aurc`, the area under
    risk–coverage (chance: the share of failures), points of that curve, `calibration`, `thresholds`."""
    usable = [g for g in graded if g.steps and g.truth is not None]
    scores, _ = parted(scores, usable)
    labels, scenarios = successes(usable, success), [g.scenario_id for g in usable]
    named = values(usable, {DEFAULT: total(lambda s: s.grade), **scores}) | {RANDOM: rng.random(len(usable))}

    def estimate(statistic: Statistic, draws: int = resamples) -> dict[str, Any]:
        return cluster_bootstrap(scenarios, statistic, rng, draws).to_json()

    def of_each(measure: Measure) -> dict[str, Any]:
        draws = {name: resamples if name == DEFAULT else min(resamples, BESIDE) for name in named}
        return {name: estimate(_on(measure, v, labels), draws[name]) for name, v in named.items()}

    folds = scenario_folds(scenarios, rng)
    return {
        "success_share": cluster_mean(labels, scenarios, rng, resamples).to_json(),
        "auprc": of_each(lambda v, y: auprc(y, v)),
        "aurc": estimate(_on(lambda v, y: area(v, 1 - y), named[DEFAULT], labels)),
        "rejection": of_each(lambda v, y: rejection_ratio(v, 1 - y)),
        "risk_coverage": _coverage(named[DEFAULT], labels, estimate),
        "calibration": _calibration(named[DEFAULT], labels, folds, estimate),
        "thresholds": [promise(named[DEFAULT], labels == 1, scenarios, rate, rng) for rate in RATES],
    }


Estimated = Callable[[Statistic], dict[str, Any]]
Measure = Callable[[Floats, Floats], float | None]
Folds = NDArray[np.int64]


def _on(measure: Measure, scores: Floats, labels: Floats) -> Statistic:
    return lambda i: measure(scores[i], labels[i])


def _coverage(scores: Floats, labels: Floats, estimate: Estimated) -> list[dict[str, Any]]:
    return [
        {"coverage": share, "failures": estimate(_on(_failures_at(share), scores, labels))}
        for share in COVERAGES
    ]


def _failures_at(coverage: float) -> Measure:
    return lambda scores, y: float(risks(scores, 1 - y)[max(1, round(coverage * len(y))) - 1])


def _calibration(scores: Floats, labels: Floats, folds: Folds, estimate: Estimated) -> dict[str, Any]:
    """Brier score, expected calibration error and gain over the base rate, out of fold."""
    base = crossfitted(scores, labels, folds, lambda _x, y: _always(float(y.mean())))
    if base is None:
        none = undefined("too few scenarios of both kinds to fit on", n=len(labels)).to_json()
        return {name: {"brier": none} for name in (*MAPS, "base rate")}
    found = {name: crossfitted(scores, labels, folds, fit) for name, fit in MAPS.items()} | {
        "base rate": base
    }
    return {
        name: {
            "brier": estimate(_on(_brier, p, labels)),
            "calibration_error": estimate(_on(expected_calibration_error, p, labels)),
            "brier_gain": estimate(_on(_mean, (base - labels) ** 2 - (p - labels) ** 2, labels)),
        }
        for name, p in found.items()
        if p is not None
    }


def crossfitted(
    scores: Floats, labels: Floats, folds: Folds, fit: Callable[[Floats, Floats], Map]
) -> Floats | None:
    """Probabilities of each run by a map fitted on the other folds; None where a fold has nothing to fit on
    (fewer than two runs, or one class)."""
    result = np.empty(len(scores))
    for fold in np.unique(folds):
        inside = folds == fold
        if len(set(labels[~inside])) < 2:
            return None
        result[inside] = fit(scores[~inside], labels[~inside])(scores[inside])
    return result if len(scores) else None


def _brier(probabilities: Floats, labels: Floats) -> float:
    return float(np.mean((probabilities - labels) ** 2))


def _mean(values: Floats, _labels: Floats) -> float:
    return float(values.mean())


def _always(share: float) -> Map:
    return lambda x: np.full(len(x), share)

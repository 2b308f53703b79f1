"""A tuned reading of the grades, chosen inside cross-validation by scenario and reported with its price.

Choosing the best of many readings on the data that it is measured on finds a good number in pure noise.
So the choice is made on other scenarios; beside it stand the default that was fixed in advance, and what
the same search finds among as many scores that are noise.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from strop.grader.attribute import attributable, hit
from strop.grader.folds import FOLDS, scenario_folds
from strop.grader.grade import Graded
from strop.grader.predict import successes
from strop.grader.ratio import Floats
from strop.grader.readings import run_readings, step_readings
from strop.grader.select import choices, picked, truths
from strop.stats.detection import auroc
from strop.stats.intervals import RESAMPLES, Estimate, cluster_bootstrap, cluster_mean, undefined

NOISE_DRAWS = 200
BOOTSTRAPS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Nested:
    """`tuned` out of fold, `default` on the same runs, their `difference`; `chosen` reading of each fold.

    `in_sample` is the best reading chosen on the data it is measured on: not a result, only what tuning on
    the test set would have printed. `noise` is the mean of that for as many noise readings, and
    `noise_95` its 95th percentile.
    """

    measure: str
    candidates: int
    chosen: Sequence[str]
    tuned: Estimate
    default: Estimate
    difference: Estimate
    in_sample: tuple[str, float] | None
    noise: float | None
    noise_95: float | None

    def to_json(self) -> dict[str, Any]:
        """All fields, estimates as objects."""
        return {
            "measure": self.measure,
            "candidates": self.candidates,
            "chosen": list(self.chosen),
            "tuned": self.tuned.to_json(),
            "default": self.default.to_json(),
            "difference": self.difference.to_json(),
            "best_in_sample": None
            if self.in_sample is None
            else {"reading": self.in_sample[0], "value": self.in_sample[1]},
            "best_noise_in_sample": {"mean": self.noise, "p95": self.noise_95},
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Additive:
    """A measure that is a mean over units (scenarios or failed runs): `worth` [units, readings]."""

    measure: str
    names: Sequence[str]
    worth: Floats
    clusters: Sequence[str]
    noise: Callable[[], Floats]


def nested_select(graded: Sequence[Graded], rng: np.random.Generator, folds: int = FOLDS) -> Nested:
    """Mean truth of the attempt picked, over scenarios."""
    some = choices(graded)
    readings = run_readings([g for choice in some for g in choice])
    worth = [[picked(c, np.array([r(g) for g in c])) for r in readings.values()] for c in some]

    def noise() -> Floats:
        made = [rng.choice(truths(c), len(readings)) for c in some]
        return np.array(made).reshape(len(some), len(readings))

    return _nested(
        _Additive(
            measure="mean truth of the attempt picked",
            names=list(readings),
            worth=np.array(worth).reshape(len(some), len(readings)),
            clusters=[c[0].scenario_id for c in some],
            noise=noise,
        ),
        rng,
        folds,
    )


def nested_attribute(
    graded: Sequence[Graded], rng: np.random.Generator, *, success: float = 1.0, folds: int = FOLDS
) -> Nested:
    """Share of failed runs whose first wrong step was named."""
    usable = attributable(graded, success)
    readings = step_readings(usable)
    worth = [[hit(g, rule(g)) for rule in readings.values()] for g in usable]

    def noise() -> Floats:
        # Continuous noise never ties: it names one step of each run, all alike.
        chance = np.array([hit(g, np.zeros(len(g.steps))) for g in usable])
        return (rng.random((len(usable), len(readings))) < chance[:, None]).astype(np.float64)

    return _nested(
        _Additive(
            measure="share of failed runs whose first wrong step was named",
            names=list(readings),
            worth=np.array(worth).reshape(len(usable), len(readings)),
            clusters=[g.scenario_id for g in usable],
            noise=noise,
        ),
        rng,
        folds,
    )


def nested_predict(
    graded: Sequence[Graded], rng: np.random.Generator, *, success: float = 1.0, folds: int = FOLDS
) -> Nested:
    """AUROC of success inside each fold, whose readings may differ in scale, weighted by its pairs."""
    usable = [g for g in graded if g.steps and g.truth is not None]
    labels, clusters = successes(usable, success), [g.scenario_id for g in usable]
    readings = run_readings(usable)
    table = np.array([[r(g) for r in readings.values()] for g in usable]).reshape(len(usable), len(readings))
    fold, names = scenario_folds(clusters, rng, folds), list(readings)
    outer = _chosen_by_auroc(table, labels, fold)
    if outer is None or not names:
        return _nothing("AUROC of success", len(names), len(usable))
    tuned = np.array([table[i, outer[f]] for i, f in enumerate(fold)])

    def within(scores: Floats) -> Callable[[NDArray[np.int64]], float | None]:
        return lambda i: _by_fold(labels[i], scores[i], fold[i])

    def apart(i: NDArray[np.int64]) -> float | None:
        ours, fixed = within(tuned)(i), within(table[:, 0])(i)
        return None if ours is None or fixed is None else ours - fixed

    def estimate(statistic: Callable[[NDArray[np.int64]], float | None]) -> Estimate:
        return cluster_bootstrap(clusters, statistic, rng, BOOTSTRAPS)

    values = [auroc(labels, column) or 0.0 for column in table.T]
    best = [max(auroc(labels, rng.random(len(labels))) or 0.0 for _ in names) for _ in range(NOISE_DRAWS)]
    return Nested(
        measure="AUROC of success, inside folds",
        candidates=len(names),
        chosen=[names[outer[f]] for f in sorted(outer)],
        tuned=estimate(within(tuned)),
        default=estimate(within(table[:, 0])),
        difference=estimate(apart),
        in_sample=(names[int(np.argmax(values))], max(values)),
        noise=float(np.mean(best)),
        noise_95=float(np.quantile(best, 0.95)),
    )


def _nested(what: _Additive, rng: np.random.Generator, folds: int) -> Nested:
    fold = scenario_folds(what.clusters, rng, folds)
    if not what.names or len(set(fold)) < 2:
        return _nothing(what.measure, len(what.names), len(what.clusters))
    outer = {f: int(np.argmax(what.worth[fold != f].mean(axis=0))) for f in sorted(set(fold.tolist()))}
    tuned = np.array([what.worth[i, outer[f]] for i, f in enumerate(fold.tolist())])
    fixed, whole = what.worth[:, 0], what.worth.mean(axis=0)
    best = [float(what.noise().mean(axis=0).max()) for _ in range(NOISE_DRAWS)]

    def estimate(values: Floats) -> Estimate:
        return cluster_mean(values, what.clusters, rng, RESAMPLES)

    return Nested(
        measure=what.measure,
        candidates=len(what.names),
        chosen=[what.names[k] for k in outer.values()],
        tuned=estimate(tuned),
        default=estimate(fixed),
        difference=estimate(tuned - fixed),
        in_sample=(what.names[int(np.argmax(whole))], float(whole.max())),
        noise=float(np.mean(best)),
        noise_95=float(np.quantile(best, 0.95)),
    )


def _chosen_by_auroc(table: Floats, labels: Floats, fold: NDArray[np.int64]) -> Mapping[int, int] | None:
    """The best reading by fold, as all other folds have it; None where those hold one class only."""
    chosen: dict[int, int] = {}
    for f in sorted(set(fold.tolist())):
        found = [auroc(labels[fold != f], column[fold != f]) for column in table.T]
        if not found or found[0] is None:
            return None
        chosen[f] = int(np.argmax([value or 0.0 for value in found]))
    return chosen or None


def _by_fold(labels: Floats, scores: Floats, fold: NDArray[np.int64]) -> float | None:
    won, pairs = 0.0, 0.0
    for f in set(fold.tolist()):
        inside = labels[fold == f]
        value = auroc(inside, scores[fold == f])
        if value is not None:
            weight = float(inside.sum() * (len(inside) - inside.sum()))
            won, pairs = won + value * weight, pairs + weight
    return won / pairs if pairs else None


def _nothing(measure: str, candidates: int, n: int) -> Nested:
    none = undefined("too few scenarios of both kinds to choose on", n=n)
    return Nested(
        measure=measure,
        candidates=candidates,
        chosen=(),
        tuned=none,
        default=none,
        difference=none,
        in_sample=None,
        noise=None,
        noise_95=None,
    )

"""The study's numbers: every setting in every world, at learning rates tuned on runs of their own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from strop.seeds import generator
from strop.stats.intervals import Estimate, cluster_mean
from studies.advantages.learner import CALLS, Optimizer, Setting, learn
from studies.advantages.worlds import WORLDS, Array, World

RUNS, TUNING_RUNS = 32, 24
LOOKS = 8
RATES: Mapping[Optimizer, tuple[float, ...]] = {
    "adam": (0.02, 0.04, 0.08, 0.16, 0.32),
    "sgd": (0.125, 0.25, 0.5, 1, 2, 4, 8, 16),
}
SIZES = (8, 4)
PLACES = (0.0, 0.1, 0.2, 0.3, 0.5, 0.8)

REFERENCE, TWICE = "std, noise x1", "std, noise x2"
ONE_ORDER: Mapping[str, Setting] = {
    "one order: std": Setting(orders=1),
    "one order: std, floor 0.1": Setting(orders=1, floor=0.1),
    "one order: none": Setting(orders=1, scale="none"),
    "one order: rank": Setting(orders=1, scale="rank"),
}
TWO_ORDERS: Mapping[str, Setting] = {
    REFERENCE: Setting(times_noise=1),
    "std": Setting(),
    TWICE: Setting(times_noise=2),
    "std, noise x4": Setting(times_noise=4),
    "none": Setting(scale="none"),
    "rank": Setting(scale="rank"),
    "rank, noise x1": Setting(scale="rank", times_noise=1),
}
MAIN = {**TWO_ORDERS, **ONE_ORDER}
MORE: Mapping[str, Setting] = {
    "4 attempts, twice the calls": Setting(times_noise=1, attempts=4, calls=2 * CALLS),
    "twice the calls": Setting(times_noise=1, calls=2 * CALLS),
}
PLAIN = {name: replace(MAIN[name], optimizer="sgd") for name in (REFERENCE, "std", "none", "rank")}
PLAIN |= {name: replace(MAIN[name], optimizer="sgd") for name in ("one order: std", "one order: none")}
ALONE = {
    f"{name}{', leave-one-out' if out else ''}": replace(MAIN[name], leave_one_out=out)
    for name in (REFERENCE, "none", "one order: std")
    for out in (False, True)
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One setting in one world.

    `rate` is the best on tuning runs, `at_edge` where it is the grid's first or last. `shares` [LOOKS, runs]
    were reached with it, `at_one_rate` [runs] at the end with the rate that is best over all worlds.
    """

    world: World
    setting: Setting
    rate: float
    at_edge: bool
    shares: Array
    at_one_rate: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Settings by name, each in the same worlds: cells by name and world, and the rate over all worlds."""

    cells: Mapping[str, Mapping[str, Cell]]
    one_rate: Mapping[str, float]

    def share(self, name: str, world: str, *, one_rate: bool = False) -> Estimate:
        """Share of the best quality at the end of the calls."""
        return estimate(self._end(name, world, one_rate))

    def above(self, name: str, other: str, world: str, *, one_rate: bool = False) -> Estimate:
        """How much more `name` reaches than `other`, paired by run."""
        return estimate(self._end(name, world, one_rate) - self._end(other, world, one_rate))

    def mean_above(self, name: str, other: str, *, one_rate: bool = False) -> Estimate:
        """The same, the mean over all worlds."""
        worlds = self.cells[name]
        gaps = [self._end(name, w, one_rate) - self._end(other, w, one_rate) for w in worlds]
        return estimate(np.mean(gaps, axis=0))

    def worst(self, name: str, among: Sequence[str], *, one_rate: bool = False) -> tuple[str, float]:
        """The world where the best of `among` is furthest above `name`, and by how much."""
        lost = {
            world: max(self._end(one, world, one_rate).mean() for one in among)
            - float(self._end(name, world, one_rate).mean())
            for world in self.cells[name]
        }
        world = max(lost, key=lambda w: lost[w])
        return world, lost[world]

    def _end(self, name: str, world: str, one_rate: bool) -> Array:
        cell = self.cells[name][world]
        end: Array = cell.at_one_rate if one_rate else cell.shares[-1]
        return end


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """The whole study: settings by size of group, costs, leave-one-out, gradient ascent, position effects.

    `again` has TWICE above REFERENCE on runs of their own, by size and world, [runs] each: TWICE was picked
    for its results, which so are too good.
    """

    runs: int
    sizes: Mapping[int, Family]
    more: Family
    alone: Mapping[int, Family]
    plain: Family
    places: Family
    again: Mapping[int, Mapping[str, Array]]


def results(runs: int) -> Results:
    """Everything with `runs` runs a cell."""
    uneven = [world for world in WORLDS if world.unscored]
    places = [World(name=f"{place:g}", words="", position=place) for place in PLACES]
    sizes = {n: family(_sized(MAIN, n), WORLDS, runs) for n in SIZES}
    return Results(
        runs=runs,
        sizes=sizes,
        more=family(
            {REFERENCE: MAIN[REFERENCE], "one order: std": MAIN["one order: std"], **MORE}, WORLDS, runs
        ),
        alone={n: family(_sized(ALONE, n), uneven, runs) for n in SIZES},
        plain=family(PLAIN, WORLDS, runs),
        places=family({name: MAIN[name] for name in (REFERENCE, "one order: std")}, places, runs),
        again={n: again(found, runs) for n, found in sizes.items()},
    )


def again(found: Family, runs: int) -> dict[str, Array]:
    """TWICE above REFERENCE on new runs, each at its rate that is best over all worlds."""
    gaps: dict[str, Array] = {}
    for world, cell in found.cells[REFERENCE].items():
        ends = [
            learn(cell.world, found.cells[name][world].setting, (found.one_rate[name],), runs, "again")[-1, 0]
            for name in (TWICE, REFERENCE)
        ]
        gaps[world] = ends[0] - ends[1]
    return gaps


def family(settings: Mapping[str, Setting], worlds: Sequence[World], runs: int) -> Family:
    """Tuned in every world, then run on other seeds at that rate and at the one best over all worlds."""
    cells: dict[str, dict[str, Cell]] = {}
    one_rate: dict[str, float] = {}
    for name, setting in settings.items():
        tuned = np.mean([_tuned(world, setting) for world in worlds], axis=0)
        one_rate[name] = RATES[setting.optimizer][int(tuned.argmax())]
        cells[name] = {world.name: _cell(world, setting, one_rate[name], runs) for world in worlds}
    return Family(cells=cells, one_rate=one_rate)


def _cell(world: World, setting: Setting, overall: float, runs: int) -> Cell:
    rates, tuned = RATES[setting.optimizer], _tuned(world, setting)
    best = int(tuned.argmax())
    shares = _measured(world, setting, rates[best], runs)
    return Cell(
        world=world,
        setting=setting,
        rate=rates[best],
        at_edge=best in (0, len(rates) - 1),
        shares=shares,
        at_one_rate=_measured(world, setting, overall, runs)[-1],
    )


@cache
def _tuned(world: World, setting: Setting) -> Array:
    """Mean share by learning rate, on runs that no reported number uses."""
    shares = learn(world, setting, RATES[setting.optimizer], TUNING_RUNS, "tune")[-1]
    mean: Array = shares.mean(axis=-1)
    return mean


@cache
def _measured(world: World, setting: Setting, rate: float, runs: int) -> Array:
    """Shares by judge calls, [LOOKS, runs]."""
    return learn(world, setting, (rate,), runs, "measure", LOOKS)[:, 0]


def forget() -> None:
    """Drops what was kept of earlier calls."""
    _tuned.cache_clear()
    _measured.cache_clear()


def _sized(settings: Mapping[str, Setting], attempts: int) -> dict[str, Setting]:
    return {name: replace(setting, attempts=attempts) for name, setting in settings.items()}


def estimate(values: Array) -> Estimate:
    """Mean over runs; 0 to 0 where no run has any difference."""
    if not values.any():
        return Estimate(estimate=0.0, low=0.0, high=0.0, n=len(values), method="alike in every run")
    return cluster_mean(values, range(len(values)), generator(0, "bootstrap", "advantages"))

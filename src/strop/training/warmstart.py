"""Warm start: supervised learning from demonstrations, measured on held-out ones."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from strop.engine import Engine, Objective
from strop.errors import EngineError, InputError
from strop.seeds import generator
from strop.stats.intervals import Estimate, cluster_ratio
from strop.store import checkpoints
from strop.store.run import Run
from strop.training.lessons import Demonstration
from strop.trajectory.tokens import Row

SCHEMA = 1
OnUpdate = Callable[[int, int], None]
"""Hears how many of how many updates are made."""


class Learns(Protocol):
    """What an update needs of an engine."""

    def accumulate(
        self, rows: Sequence[Row], advantages: Sequence[float], objective: Objective = "policy"
    ) -> Mapping[str, float]: ...

    def step(self) -> Mapping[str, float]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmstartPlan:
    """`run` keeps lines and checkpoints, one a measurement. `every` updates lie between two measurements
    (0: an epoch); `patience` of them in a row without a lower loss end it (0: never)."""

    engine: Engine
    run: Run
    learned: Sequence[Demonstration]
    heldout: Sequence[Demonstration]
    epochs: int
    batch: int
    every: int = 0
    patience: int = 0
    seed: int = 0
    resume: bool = False
    progress: OnUpdate = lambda _done, _total: None
    now: Callable[[], float] = time.perf_counter

    @property
    def updates(self) -> int:
        """Updates until the end of the last epoch."""
        return updates_in(len(self.learned), self.batch, self.epochs)


def updates_in(demonstrations: int, batch: int, epochs: int) -> int:
    """Updates of a whole warm start; the last batch of an epoch may be smaller."""
    return epochs * -(-demonstrations // batch)


def warm_up(plan: WarmstartPlan) -> list[dict[str, Any]]:
    """Learn until the updates or the patience are spent; the lines of all measurements, the first before
    any update.

    Killed anywhere and resumed, it ends with the same lines and the same adapter. `best` of the
    checkpoints is the one of the lowest held-out loss after at least one update, the last one where
    nothing is held out. Raises EngineError for a loss that is not finite.
    """
    _begin(plan)
    while not _over(plan):
        last = plan.run.steps()[-1]
        began = plan.now()
        done = last["updates"]
        stop = min(plan.updates, done + (plan.every or plan.updates // plan.epochs))
        learned = [_one_update(plan, number) for number in range(done, stop)]
        line = _line(plan, last["step"] + 1, stop, learned, began)
        _save(plan, line)
        plan.run.append_step(line)
    return plan.run.steps()


def supervised_update(engine: Learns, rows: Sequence[Row], weights: Sequence[float]) -> dict[str, float]:
    """One step on the mean, over the rows' masked tokens, of weight times -log π; what the engine reports.

    Raises EngineError, before the step, for a loss that is not finite.
    """
    learned = engine.accumulate(rows, weights, "supervised")
    if not math.isfinite(learned["loss"]):
        raise EngineError("the loss is not finite; lower the learning rate")
    return {**learned, **engine.step()}


def token_losses(engine: Engine, demonstrations: Sequence[Demonstration]) -> NDArray[np.float64]:
    """Sum of weight times -log π, and sum of weights, over each demonstration's learned tokens, [n, 2]."""
    rows = [row for each in demonstrations for row in each.rows]
    weights = [weight for each in demonstrations for weight in each.weights]
    scored = engine.logprobs(rows, "policy")
    sums = np.array(
        [(-w * s.sum(), w * len(s)) for s, w in zip(scored, weights, strict=True)], dtype=np.float64
    ).reshape(-1, 2)
    first = np.cumsum([0, *(len(each.rows) for each in demonstrations)])[:-1]
    return np.add.reduceat(sums, first) if len(sums) else np.zeros((0, 2))


def best_line(lines: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The line whose checkpoint is the result: lowest held-out loss after an update, else the last."""
    learned = [line for line in lines if line["updates"]]
    known = [line for line in learned if _loss(line) is not None]
    return min(known, key=lambda line: _loss(line) or 0.0) if known else learned[-1]


def _begin(plan: WarmstartPlan) -> None:
    """Measure the start, or load where it stopped."""
    done = plan.run.steps()
    if not plan.resume and done:
        raise InputError(f"{plan.run.path}: a warm start was stopped here; resume it, or delete the folder")
    found = checkpoints.latest(plan.run) if plan.resume else None
    if found is not None:
        plan.engine.load(found.path)
        if all(line["step"] != found.step for line in done):
            # Killed between checkpoint and line.
            plan.run.append_step(found.manifest["line"])
    elif not done:
        plan.run.append_step(_line(plan, 0, 0, [], plan.now()))


def _over(plan: WarmstartPlan) -> bool:
    lines = plan.run.steps()
    if lines[-1]["updates"] >= plan.updates:
        return True
    losses = [_loss(line) for line in lines]
    if not plan.patience or None in losses:
        return False
    lowest = min(range(len(losses)), key=lambda i: losses[i] or 0.0)
    return len(losses) - 1 - lowest >= plan.patience


def _one_update(plan: WarmstartPlan, number: int) -> dict[str, float]:
    batch = [plan.learned[i] for i in _batch(plan, number)]
    rows = [row for each in batch for row in each.rows]
    weights = [weight for each in batch for weight in each.weights]
    try:
        learned = supervised_update(plan.engine, rows, weights)
    except EngineError as error:
        raise EngineError(f"update {number}: {error}; {plan.run.path} has what was learned before") from error
    plan.progress(number + 1, plan.updates)
    return learned


def _batch(plan: WarmstartPlan, number: int) -> list[int]:
    """Places of the demonstrations of an update: epochs of shuffled demonstrations, cut into batches."""
    in_epoch = plan.updates // plan.epochs
    epoch, place = divmod(number, in_epoch)
    order = generator(plan.seed, "epoch", epoch).permutation(len(plan.learned))
    return [int(i) for i in order[place * plan.batch : (place + 1) * plan.batch]]


def _save(plan: WarmstartPlan, line: Mapping[str, Any]) -> None:
    lines = [*plan.run.steps(), line]
    best = best_line(lines) is line
    checkpoints.save(plan.run, line["step"], plan.engine.save, {"line": dict(line)}, best=best)
    checkpoints.prune(plan.run, keep=1)


def _line(
    plan: WarmstartPlan, step: int, updates: int, learned: Sequence[Mapping[str, float]], began: float
) -> dict[str, Any]:
    """A measurement: `loss` is the mean over the tokens learned since the one before, null before any."""
    tokens = sum(each["tokens"] for each in learned)
    loss = sum(each["loss"] * each["tokens"] for each in learned) / tokens if tokens else None
    heldout = heldout_loss(plan, step)
    return {
        "schema": SCHEMA,
        "step": step,
        "updates": updates,
        "epoch": round(updates * plan.epochs / plan.updates, 6),
        "loss": loss,
        "heldout_loss": None if heldout is None else heldout.to_json(),
        "tokens": tokens,
        "grad_norm": learned[-1]["grad_norm"] if learned else None,
        "learning_rate": learned[-1]["learning_rate"] if learned else None,
        "seconds": plan.now() - began,
    }


def heldout_loss(plan: WarmstartPlan, step: int) -> Estimate | None:
    """Nats a token over the held-out demonstrations, resampled by scenario; None where there are none.

    With one scenario there is no interval and no number: learning then goes on to its end.
    """
    if not plan.heldout:
        return None
    by_scenario: dict[str, NDArray[np.float64]] = {}
    for each, sums in zip(plan.heldout, token_losses(plan.engine, plan.heldout), strict=True):
        by_scenario[each.scenario_id] = by_scenario.get(each.scenario_id, np.zeros(2)) + sums
    sums = np.array(list(by_scenario.values()))
    return cluster_ratio(sums[:, 0], sums[:, 1], generator(plan.seed, "held-out loss", step))


def _loss(line: Mapping[str, Any]) -> float | None:
    return line["heldout_loss"]["estimate"] if line["heldout_loss"] else None

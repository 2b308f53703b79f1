"""Attempts at the held-out orders, and what completing them again says of their steps."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from strop.app.building import plain_engine
from strop.demo.desk import desk_scenario, open_desk
from strop.demo.orders import OrderScenario
from strop.demo.step_values import Completions, step_values
from strop.engines.opening import EmbeddedEngine
from strop.inference.client import close_connections
from strop.rollout.runner import RolloutPlan, collect
from strop.rollout.tool_agent import environment_attempts
from strop.trajectory import codec
from strop.trajectory.grouping import grouped
from strop.trajectory.lines import read_objects, write_objects
from strop.trajectory.model import Trajectory
from studies.order_desk.setting import Setting

TOGETHER = 12
"""Scenarios that are rolled out at once, and kept as one finished piece."""
Lines = Sequence[dict[str, Any]]
Part = TypeVar("Part")


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """Who attempts how many scenarios: `name` is in the attempts' ids and decides their luck."""

    name: str
    adapter: Path
    scenarios: int


def attempted(actor: Actor, setting: Setting, work: Path) -> Path:
    """The file of the actor's attempts at temperature 1."""
    cases = setting.cases(actor.scenarios)
    parts = {
        f"{cases[at].scenario_id}.jsonl": cases[at : at + TOGETHER] for at in range(0, len(cases), TOGETHER)
    }

    async def roll(engine: EmbeddedEngine, some: Sequence[OrderScenario]) -> Lines:
        limits = setting.limits(setting.attempts)
        plan = RolloutPlan(
            sessions=engine.gateway,
            attempt=environment_attempts(open_desk, limits, seed=setting.seed),
            part=actor.name,
            limits=limits,
            api_key=engine.api_key,
        )
        groups = await collect([desk_scenario(case) for case in some], plan)
        return [codec.to_dict(trajectory) for group in groups for trajectory in group.trajectories]

    return _in_parts(work / "attempts" / actor.name, actor.adapter, parts, roll)


def valued(attempts: Path, actor: Actor, setting: Setting, work: Path) -> Path:
    """Monte-Carlo values of the steps of the first scenarios, completed by `actor`: see `step_values`."""
    groups = grouped(codec.read(attempts))[: setting.valued]
    parts = {f"{group.scenario_id}.jsonl": group.trajectories for group in groups}

    async def complete(engine: EmbeddedEngine, some: Sequence[Trajectory]) -> Lines:
        how = Completions(
            sessions=engine.gateway,
            limits=setting.limits(setting.completions),
            api_key=engine.api_key,
            seed=setting.seed,
        )
        return await step_values(some, how)

    return _in_parts(work / "values" / attempts.stem, actor.adapter, parts, complete)


def _in_parts(
    folder: Path,
    adapter: Path,
    parts: dict[str, Part],
    make: Callable[[EmbeddedEngine, Part], Coroutine[Any, Any, Lines]],
) -> Path:
    """One file of all parts beside `folder`; parts that a stopped call finished are not made again."""
    whole = folder.with_suffix(".jsonl")
    if whole.exists():
        return whole
    missing = {name: part for name, part in parts.items() if not (folder / name).exists()}
    if missing:
        with plain_engine("smollm2", adapter) as engine:
            for name, part in missing.items():
                write_objects(folder / name, asyncio.run(_closing(make(engine, part))))
    write_objects(whole, (line for name in parts for line in read_objects(folder / name)))
    return whole


async def _closing(made: Coroutine[Any, Any, Lines]) -> Lines:
    """Connections belong to the loop that opened them."""
    try:
        return await made
    finally:
        await close_connections()

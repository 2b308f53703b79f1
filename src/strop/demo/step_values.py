"""What a step is worth, measured: complete the attempt from there many times and count what succeeds.

Math-Shepherd (arXiv 2312.08935), soft estimate. It needs a world that can be reset, as the order desk
can, and many more model calls than a grade does: a baseline for `strop predict` and `strop attribute`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from strop.demo.desk import OrderDesk
from strop.demo.orders import by_id
from strop.rollout.agent import Attempt
from strop.rollout.environment import Scenario
from strop.rollout.limits import Limits
from strop.rollout.runner import RolloutPlan, collect
from strop.rollout.sessions import Sessions
from strop.rollout.tool_agent import ToolAgent
from strop.seeds import derive, generator
from strop.trajectory.model import Message, Trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class Completions:
    """Who completes: `sessions` of a served policy named `model`, `limits.attempts` times a step, within
    `limits.max_turns` model calls an attempt in all."""

    sessions: Sessions
    limits: Limits = field(default_factory=Limits)
    api_key: str = "strop"
    model: str = "policy"
    seed: int = 0


async def step_values(trajectories: Sequence[Trajectory], how: Completions) -> list[dict[str, Any]]:
    """One line a trajectory, `trajectory_id` and `step_scores`: after each assistant message the share of
    completions that succeed, in [0, 1]; of an attempt that is over, its own truth, if that is known.

    The form of a `--baseline NAME=FILE`. Steps no completion of which ended well count as 0.
    """
    prefixes = {f"{t.trajectory_id}#{k}": p for t in trajectories for k, p in enumerate(_prefixes(t))}
    owners = {f"{t.trajectory_id}#{k}": t for t in trajectories for k in range(len(_prefixes(t)))}
    open_ended = [name for name, messages in prefixes.items() if not _over(messages, how.limits)]

    def attempt(scenario: Scenario, trajectory_id: str) -> Attempt:
        name = scenario.scenario_id
        rng = generator(how.seed, "step value", trajectory_id)
        desk = OrderDesk(by_id(owners[name].scenario_id), rng)
        desk.replay(prefixes[name])
        left = replace(how.limits, max_turns=how.limits.max_turns - _said(prefixes[name]))
        seed = derive(how.seed, "completion", trajectory_id)
        agent = ToolAgent(environment=desk, limits=left, seed=seed, model=how.model)
        return Attempt(agent=agent, truth=desk.truth, close=desk.close)

    plan = RolloutPlan(
        sessions=how.sessions, attempt=attempt, part="value", limits=how.limits, api_key=how.api_key
    )
    groups = await collect([Scenario(scenario_id=name) for name in open_ended], plan)
    values = {g.scenario_id: float(np.mean([t.truth or 0.0 for t in g.trajectories])) for g in groups}
    return [
        {
            "trajectory_id": t.trajectory_id,
            "step_scores": [
                values.get(f"{t.trajectory_id}#{k}", _own(t, p)) for k, p in enumerate(_prefixes(t))
            ],
        }
        for t in trajectories
    ]


def _prefixes(trajectory: Trajectory) -> list[tuple[Message, ...]]:
    """The conversation after each assistant message, with the results of its calls."""
    messages = trajectory.messages
    ends = [i for i, m in enumerate(messages) if m["role"] == "assistant"]
    upto = [*ends[1:], len(messages)]
    return [messages[:end] for end in upto]


def _over(messages: Sequence[Message], limits: Limits) -> bool:
    """Whether nothing can follow: the last reply calls no tool, or there were as many as may be."""
    last = [m for m in messages if m["role"] == "assistant"][-1]
    return not last.get("tool_calls") or _said(messages) >= limits.max_turns


def _own(trajectory: Trajectory, messages: Sequence[Message]) -> float:
    """What came of an attempt that is over; by the desk's own check where no truth was recorded."""
    if trajectory.truth is not None:
        return trajectory.truth
    desk = OrderDesk(by_id(trajectory.scenario_id), generator(0, "over"))
    try:
        desk.replay(messages)
        return desk.truth(messages).value
    finally:
        desk.close()


def _said(messages: Sequence[Message]) -> int:
    return sum(m["role"] == "assistant" for m in messages)

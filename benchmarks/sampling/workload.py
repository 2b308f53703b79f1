"""What is sampled: attempts at the order desk, and conversations of a fixed shape."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strop.demo.desk import desk_scenario, open_desk
from strop.demo.orders import ITEMS, STATUSES, scenarios
from strop.rollout.agent import Attempt, MakeAttempt
from strop.rollout.environment import Scenario
from strop.rollout.limits import Limits
from strop.rollout.tool_agent import environment_attempts
from strop.seeds import derive, generator
from strop.trajectory.model import Message

if TYPE_CHECKING:
    from openai import AsyncOpenAI

WARMSTART = Path(__file__).parents[2] / "src" / "strop" / "demo" / "adapters" / "warmstart"
SYSTEM_ORDERS, QUESTION_ORDERS, RESULT_ORDERS = 9, 3, 3
TURNS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """`scenarios(pair, groups)` are new in each pair, so that no cache knows them from an earlier one.

    `ends`: a reply ends where the model ends it; else it always has `limits.max_tokens` tokens.
    `adapter`: what is folded into the model, if anything.
    """

    name: str
    adapter: Path | None
    ends: bool
    limits: Limits
    scenarios: Callable[[int, int], Sequence[Scenario]]
    attempt: MakeAttempt


def order_desk(attempts: int) -> Workload:
    """The demo's policy on held-out cases, with the limits of its run file."""
    limits = Limits(attempts=attempts, deadline_s=3600, max_turns=6, max_tokens=48)

    def cases(pair: int, groups: int) -> Sequence[Scenario]:
        return [desk_scenario(case) for case in scenarios("heldout", groups, pair * groups)]

    attempt = environment_attempts(open_desk, limits, seed=0)
    return Workload(
        name="order_desk", adapter=WARMSTART, ends=True, limits=limits, scenarios=cases, attempt=attempt
    )


def four_turns(attempts: int, tokens: int) -> Workload:
    """Four replies of exactly `tokens` tokens each by the bare model, results of about 60 between them.

    System prompt and question, some 350 tokens, are a group's; results are an attempt's own.
    """
    limits = Limits(attempts=attempts, deadline_s=3600, max_turns=TURNS, max_tokens=tokens)

    def cases(pair: int, groups: int) -> Sequence[Scenario]:
        return [Scenario(scenario_id=f"orders-{pair}-{group}") for group in range(groups)]

    def attempt(_scenario: Scenario, trajectory_id: str) -> Attempt:
        return Attempt(agent=_Scripted(limits=limits, name=trajectory_id))

    return Workload(
        name="four_turns", adapter=None, ends=False, limits=limits, scenarios=cases, attempt=attempt
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scripted:
    """An agent that goes on for all of its turns, whatever it is told."""

    limits: Limits
    name: str

    async def __call__(self, client: "AsyncOpenAI", scenario: Scenario, /) -> Sequence[Message]:
        messages = _opening(scenario)
        for turn in range(self.limits.max_turns):
            if turn:
                found = _orders(f"{self.name}/{turn}", RESULT_ORDERS)
                messages.append({"role": "user", "content": f"Result:\n{found}"})
            asked: Any = {
                "model": "policy",
                "messages": list(messages),
                "temperature": self.limits.temperature,
                "max_tokens": self.limits.max_tokens,
                "seed": derive(0, self.name, turn) >> 1,
            }
            completion = await client.chat.completions.create(**asked)
            messages.append({"role": "assistant", "content": completion.choices[0].message.content})
        return messages


def _opening(scenario: Scenario) -> list[Message]:
    name = scenario.scenario_id
    system = f"You write the daily report of an order desk.\n{_orders(f'{name}/system', SYSTEM_ORDERS)}"
    question = f"{_orders(f'{name}/question', QUESTION_ORDERS)}\nWhat do these tell us? Write a report."
    return [{"role": "system", "content": system}, {"role": "user", "content": question}]


def _orders(seed: str, count: int) -> str:
    """So many lines of about 25 tokens."""
    rng = generator(0, "orders", seed)
    return "\n".join(
        f"Order {rng.integers(1000, 10000)}: {rng.choice(ITEMS)}, {rng.choice(STATUSES)}, "
        f"{rng.integers(5, 90)} euro, day {rng.integers(1, 366)}."
        for _ in range(count)
    )

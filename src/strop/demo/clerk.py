"""Demonstrations: a scripted clerk who works the desk, rightly or with faults that are asked for.

It makes training text for the two shipped adapters. It judges nothing and trains nothing by itself.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from strop.demo.desk import OrderDesk
from strop.demo.orders import REFUNDABLE, STATUSES, OrderScenario
from strop.demo.truth import Outcome
from strop.trajectory.model import Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """How often the clerk goes wrong. All are probabilities.

    `right_by_status` decides as the policy asks; `blind` decides after a failed lookup instead of
    trying again; `policy` reads the rules first (harmless); `silent` ends without deciding; `garbled`
    talks of a decision and makes none; `misread` states another status than was read, and decides by
    that; `stray` decides on another order.
    """

    right_by_status: Mapping[str, float]
    blind: float = 0.0
    policy: float = 0.0
    silent: float = 0.0
    garbled: float = 0.0
    misread: float = 0.0
    stray: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Demonstration:
    """A finished conversation at the desk, and how it really ended."""

    scenario: OrderScenario
    messages: tuple[Message, ...]
    outcome: Outcome


def demonstrate(scenario: OrderScenario, habits: Habits, rng: np.random.Generator) -> Demonstration:
    """Work one case with these habits."""
    desk = OrderDesk(scenario, rng)
    clerk = _Clerk(desk, habits, rng)
    clerk.work()
    messages = tuple(clerk.messages)
    result = desk.truth(messages)
    desk.close()
    return Demonstration(scenario=scenario, messages=messages, outcome=result)


class _Clerk:
    def __init__(self, desk: OrderDesk, habits: Habits, rng: np.random.Generator) -> None:
        self.desk, self.habits, self.rng = desk, habits, rng
        self.messages: list[Message] = list(desk.messages)

    def work(self) -> None:
        case = self.desk.scenario
        if not case.number_given:
            self.call("ask", {"question": "Which order?"})
        if self.chance(self.habits.policy):
            self.call("policy", {})
        status = self.look_up(case.order)
        if self.chance(self.habits.silent):
            self.say("We will look into it.")
            return
        if self.chance(self.habits.garbled):
            self.say(f"Status: {status or 'unknown'}.\n{self.talk(case.order)}")
            return
        self.decide(case, status)

    def look_up(self, number: str) -> str | None:
        for _ in range(4):
            result = json.loads(self.call("lookup", {"order": number}))
            if "status" in result:
                return str(result["status"])
            if self.chance(self.habits.blind):
                return None
        return None

    def decide(self, case: OrderScenario, status: str | None) -> None:
        if status and self.chance(self.habits.misread):
            status = str(self.rng.choice([other for other in STATUSES if other != status]))
        right = self.chance(self.habits.right_by_status[status] if status else 0.5)
        refund = (status in REFUNDABLE) == right if status else right
        number = case.order
        if self.chance(self.habits.stray):
            number = str(int(self.rng.integers(1000, 10000)))
        thought = f"Status: {status}." if status else "Status: unknown."
        self.call("refund" if refund else "decline", {"order": number}, thought)
        self.say("Refunded." if refund else "Not refunded.")

    def talk(self, number: str) -> str:
        """What a model says that has lost the form of a call: signatures, half calls, claims."""
        tool = str(self.rng.choice(("refund", "decline", "lookup", "ask")))
        claim = str(self.rng.choice(("Refunded.", "Not refunded.")))
        forms = (f"{tool}(order: string): pay back, final.", f'{tool}(order: "{number}").', claim)
        return " ".join(str(form) for form in self.rng.choice(forms, size=int(self.rng.integers(1, 3))))

    def call(self, name: str, arguments: Mapping[str, Any], thought: str | None = None) -> str:
        call_id = f"call_{len(self.messages)}"
        function = {"name": name, "arguments": json.dumps(arguments)}
        call = {"id": call_id, "type": "function", "function": function}
        self.messages.append({"role": "assistant", "content": thought, "tool_calls": [call]})
        result = self.desk.call(name, arguments)
        self.messages.append({"role": "tool", "tool_call_id": call_id, "content": result})
        return result

    def say(self, text: str) -> None:
        self.messages.append({"role": "assistant", "content": text})

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

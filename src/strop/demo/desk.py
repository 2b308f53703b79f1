"""The order desk: a customer-service environment over a real SQLite database.

The world is stochastic: a lookup sometimes times out and must be tried again. A refund cannot be
undone. The desk keeps a journal of every call, from which `strop.demo.truth` reads the outcome.
"""

import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from strop.demo.orders import FINAL, REFUNDABLE, OrderScenario, by_id
from strop.demo.truth import Outcome, outcome
from strop.errors import InputError
from strop.rollout.environment import Scenario
from strop.rollout.tool_agent import readable_arguments
from strop.seeds import generator
from strop.trajectory.model import Message

LOOKUP_FAILS = 0.2

SYSTEM = (
    "You work at the order desk. Look the order up, then refund it or decline, then tell the customer. "
    "If a lookup fails, try again. If you do not know the order number, ask. A refund cannot be undone."
)

POLICY = (
    f"Refund an order that is {', '.join(REFUNDABLE[:-1])} or {REFUNDABLE[-1]}. "
    f"Decline one that is {', '.join(FINAL[:-1])} or {FINAL[-1]}."
)


def _tool(name: str, description: str, *parameters: str) -> dict[str, Any]:
    properties = {parameter: {"type": "string"} for parameter in parameters}
    schema = {"type": "object", "properties": properties, "required": list(parameters)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


TOOLS: Sequence[Mapping[str, Any]] = (
    _tool("lookup", "status of an order", "order"),
    _tool("policy", "the refund rules"),
    _tool("ask", "ask the customer", "question"),
    _tool("refund", "pay back, final", "order"),
    _tool("decline", "refuse a refund", "order"),
)

_SCHEMA = """
CREATE TABLE orders (number TEXT PRIMARY KEY, item TEXT NOT NULL, status TEXT NOT NULL);
CREATE TABLE decisions (number TEXT PRIMARY KEY REFERENCES orders, decision TEXT NOT NULL);
CREATE TABLE journal (step INTEGER NOT NULL, tool TEXT NOT NULL, number TEXT, ok INTEGER NOT NULL);
"""


class OrderDesk:
    """One attempt at one scenario; single use. `rng` decides which lookups fail."""

    def __init__(self, scenario: OrderScenario, rng: np.random.Generator) -> None:
        self.scenario = scenario
        self.tools = TOOLS
        self.messages: tuple[Message, ...] = (
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": scenario.customer_message},
        )
        self._fails: Callable[[], bool] = lambda: bool(rng.random() < LOOKUP_FAILS)
        self._steps = 0
        self._database = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self._database.executescript(_SCHEMA)
        self._database.execute(
            "INSERT INTO orders VALUES (?, ?, ?)", (scenario.order, scenario.item, scenario.status)
        )

    @property
    def done(self) -> bool:
        """Never by itself: the attempt ends when the agent answers the customer without a call."""
        return False

    def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Execute one tool call and return its result as JSON text; wrong calls get an error result."""
        tool = {
            "lookup": self._lookup,
            "policy": self._policy,
            "ask": self._ask,
            "refund": self._decide,
            "decline": self._decide,
        }.get(name)
        if tool is None:
            return json.dumps({"error": f"no tool {name}"})
        # A model can spell half a character, which no database takes.
        number = str(arguments.get("order", "")).encode("utf-8", "replace").decode()
        result = tool(name, number)
        self._database.execute(
            "INSERT INTO journal VALUES (?, ?, ?, ?)", (self._steps, name, number, "error" not in result)
        )
        self._steps += 1
        return json.dumps(result)

    def replay(self, messages: Sequence[Message]) -> None:
        """Live through a recorded conversation again, with the luck its lookups had; it goes on from there.

        For a fresh desk. Raises InputError where a call answers otherwise than it was recorded.
        """
        results = {m["tool_call_id"]: str(m["content"]) for m in messages if m["role"] == "tool"}
        luck = self._fails
        for call in (call for m in messages for call in m.get("tool_calls") or ()):
            arguments = readable_arguments(call, TOOLS)
            if isinstance(arguments, str) or call["id"] not in results:
                continue
            recorded = results[call["id"]]
            self._fails = lambda recorded=recorded: "timeout" in recorded  # type: ignore[misc]
            if self.call(call["function"]["name"], arguments) != recorded:
                raise InputError(f"{self.scenario.scenario_id}: the recorded calls are not of this desk")
        self._fails = luck
        self.messages = tuple(messages)

    def truth(self, messages: Sequence[Message]) -> Outcome:
        """What really happened, read from the journal and the conversation."""
        journal = self._database.execute("SELECT tool, number, ok FROM journal ORDER BY step").fetchall()
        return outcome(self.scenario, journal, messages, TOOLS)

    def close(self) -> None:
        """Drop the database."""
        self._database.close()

    def _lookup(self, _name: str, number: str) -> dict[str, str]:
        row = self._database.execute("SELECT item, status FROM orders WHERE number = ?", (number,)).fetchone()
        if row is None:
            return {"error": "no such order"}
        if self._fails():
            return {"error": "timeout"}
        return {"item": row[0], "status": row[1]}

    def _policy(self, _name: str, _number: str) -> dict[str, str]:
        return {"policy": POLICY}

    def _ask(self, _name: str, _number: str) -> dict[str, str]:
        return {"customer": f"It is order {self.scenario.order}."}

    def _decide(self, name: str, number: str) -> dict[str, str]:
        try:
            self._database.execute("INSERT INTO decisions VALUES (?, ?)", (number, name))
        except sqlite3.IntegrityError:
            return {"error": "already decided"}
        return {"ok": name}


def desk_scenario(case: OrderScenario) -> Scenario:
    """The scenario as the rollout sees it: an id only. What became of the order stays with the desk."""
    return Scenario(scenario_id=case.scenario_id)


def open_desk(scenario: Scenario, seed: int) -> OrderDesk:
    """A fresh desk for one attempt at an order-desk scenario; `seed` decides which lookups fail."""
    return OrderDesk(by_id(scenario.scenario_id), generator(seed, "desk"))

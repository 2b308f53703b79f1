"""Conversations at the order desk, played by the real tool loop with replies that are written down."""

import asyncio
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from strop.demo.desk import OrderDesk
from strop.demo.orders import OrderScenario
from strop.demo.truth import Outcome
from strop.rollout.environment import Scenario
from strop.rollout.limits import Limits
from strop.rollout.tool_agent import ToolAgent
from strop.trajectory.model import Message

BYE = "Done."

Step = str | tuple[tuple[str, Any], ...]
"""What the agent says, or the calls it makes: (tool, arguments), arguments an object or a raw text."""


class Draws:
    """A generator whose draws are written down; after the last one no lookup fails."""

    def __init__(self, values: Iterable[float]) -> None:
        self._values = list(values)

    def random(self) -> float:
        return self._values.pop(0) if self._values else 1.0


@dataclass(frozen=True)
class Played:
    messages: Sequence[Message]
    outcome: Outcome


def order(status: str = "lost", *, number_given: bool = True) -> OrderScenario:
    return OrderScenario(
        scenario_id="train-0000",
        order="1234",
        item="lamp",
        status=status,
        claim="It never came.",
        opening="Hello,",
        number_given=number_given,
    )


def calls(*made: tuple[str, Any]) -> Step:
    """One assistant message with these calls."""
    return made


def _message(step: Step, index: int) -> SimpleNamespace:
    if isinstance(step, str):
        return SimpleNamespace(content=step, tool_calls=None)
    listed = [
        SimpleNamespace(
            id=f"call_{index}_{place}",
            function=SimpleNamespace(
                name=name, arguments=given if isinstance(given, str) else json.dumps(given)
            ),
        )
        for place, (name, given) in enumerate(step)
    ]
    return SimpleNamespace(content=None, tool_calls=listed)


def play(
    case: OrderScenario, steps: Sequence[Step], draws: Iterable[float] = (), max_turns: int = 0
) -> Played:
    """Let the tool loop run these steps, as many as it asks for, and ask the desk what came of it."""
    waiting = [_message(step, index) for index, step in enumerate(steps)]

    async def create(**_request: Any) -> Any:
        return SimpleNamespace(choices=[SimpleNamespace(message=waiting.pop(0))])

    client: Any = SimpleNamespace(chat=SimpleNamespace(completions=SimpleNamespace(create=create)))
    chance: Any = Draws(draws)
    desk = OrderDesk(case, chance)
    agent = ToolAgent(environment=desk, limits=Limits(max_turns=max_turns or len(steps)))
    messages = asyncio.run(agent(client, Scenario(scenario_id=case.scenario_id)))
    played = Played(messages, desk.truth(messages))
    desk.close()
    return played

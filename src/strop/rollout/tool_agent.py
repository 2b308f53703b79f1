"""The generic tool loop: ask the model, execute its calls in an environment, until it is done."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from strop.rollout.agent import Attempt, MakeAttempt
from strop.rollout.environment import Environment, Scenario
from strop.rollout.limits import Limits
from strop.seeds import derive
from strop.trajectory.model import Message

if TYPE_CHECKING:
    from openai import AsyncOpenAI


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolAgent:
    """Drives one environment. `seed` makes its requests repeatable, one derived seed a turn.

    Ends when the environment is done, when the model calls no tool, or after `limits.max_turns`
    model calls. A call with broken JSON or of a tool that does not exist gets an error as its
    result, without reaching the environment, and the attempt goes on.
    """

    environment: Environment
    limits: Limits
    seed: int = 0
    model: str = "policy"

    async def __call__(self, client: AsyncOpenAI, scenario: Scenario, /) -> Sequence[Message]:  # noqa: ARG002 - the environment knows it
        messages: list[Message] = list(self.environment.messages)
        for turn in range(self.limits.max_turns):
            reply = await self._ask(client, messages, turn)
            messages.append(reply)
            for call in reply.get("tool_calls", ()):
                result = await self._execute(call)
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
            if self.environment.done or "tool_calls" not in reply:
                break
        return messages

    async def _ask(self, client: AsyncOpenAI, messages: Sequence[Message], turn: int) -> Message:
        request: dict[str, Any] = {
            "model": self.model,
            "messages": list(messages),
            "temperature": self.limits.temperature,
            "max_tokens": self.limits.max_tokens,
            "seed": derive(self.seed, "turn", turn) >> 1,
        }
        if self.environment.tools:
            request["tools"] = list(self.environment.tools)
        completion = await client.chat.completions.create(**request)
        return _plain_reply(completion.choices[0].message)

    async def _execute(self, call: Mapping[str, Any]) -> str:
        arguments = readable_arguments(call, self.environment.tools)
        if isinstance(arguments, str):
            return json.dumps({"error": arguments})
        result = self.environment.call(call["function"]["name"], arguments)
        return await result if inspect.isawaitable(result) else result


def readable_arguments(
    call: Mapping[str, Any], tools: Sequence[Mapping[str, Any]]
) -> Mapping[str, Any] | str:
    """The arguments of a call that can be executed, or a line that says why it cannot be."""
    name = call["function"]["name"]
    offered = [tool["function"]["name"] for tool in tools]
    if name not in offered:
        return f"no tool {name}; there are: {', '.join(offered)}"
    try:
        arguments = json.loads(call["function"]["arguments"] or "{}")
    except ValueError as error:
        return f"arguments are not JSON: {error}"
    return arguments if isinstance(arguments, dict) else "arguments must be a JSON object"


def environment_attempts(
    make: Callable[[Scenario, int], Environment], limits: Limits, *, seed: int, model: str = "policy"
) -> MakeAttempt:
    """Attempts by a ToolAgent, each in a fresh environment `make(scenario, seed)`.

    World and requests of an attempt depend on `seed` and its trajectory id alone.
    """

    def attempt(scenario: Scenario, trajectory_id: str) -> Attempt:
        environment = make(scenario, derive(seed, "environment", trajectory_id))
        agent = ToolAgent(
            environment=environment, limits=limits, seed=derive(seed, "agent", trajectory_id), model=model
        )
        return Attempt(agent=agent, truth=environment.truth, close=environment.close)

    return attempt


def _plain_reply(message: Any) -> Message:
    reply: dict[str, Any] = {"role": "assistant", "content": message.content}
    if message.tool_calls:
        reply["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.function.name, "arguments": call.function.arguments},
            }
            for call in message.tool_calls
        ]
    return reply

"""The same agents without a gateway: their token ids go straight to whoever samples."""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, Protocol, cast

from benchmarks.sampling.workload import Workload
from strop.inference.chat import Chat
from strop.rollout.environment import Scenario


class Peer(Protocol):
    """Another sampler."""

    async def sample(self, prompt: list[int], most: int, *, ends: bool) -> list[int]:
        """At most `most` sampled ids, the end id included; exactly so many unless the reply `ends`."""
        ...

    def began(self, conversations: int) -> None:
        """So many conversations begin now."""
        ...

    def ended(self) -> None:
        """One of them will ask for nothing more."""
        ...


class _Client:
    """Looks to an agent like a client of the SDK. One conversation; its past is kept as it was sampled."""

    def __init__(self, chat: Chat, peer: Peer, *, ends: bool) -> None:
        self.chat = SimpleNamespace(completions=self)
        self.sampled = 0
        self._chat, self._peer, self._ends = chat, peer, ends
        self._ids: list[int] = []
        self._known = 0

    async def create(
        self, *, messages: list[Any], max_tokens: int, tools: Sequence[Any] = (), **_: Any
    ) -> Any:
        extended = self._chat.extend(self._ids, messages, self._known, tools) if self._known else None
        prompt = extended or self._chat.prompt(messages, tools)
        sampled = await self._peer.sample(prompt, max_tokens, ends=self._ends)
        self.sampled += len(sampled)
        self._ids, self._known = [*prompt, *sampled], len(messages) + 1
        reply = self._chat.parse(self._chat.tokenizer.decode(sampled), tools)
        calls = [
            SimpleNamespace(id=f"call_{index}", function=SimpleNamespace(name=c.name, arguments=c.arguments))
            for index, c in enumerate(reply.tool_calls)
        ]
        message = SimpleNamespace(content=reply.content, tool_calls=calls or None)
        return SimpleNamespace(choices=[SimpleNamespace(message=message)])


async def sampled_by(peer: Peer, workload: Workload, scenarios: Sequence[Scenario], chat: Chat) -> int:
    """Do all attempts at once. Returns how many tokens were sampled."""

    async def one(scenario: Scenario, name: str) -> int:
        attempt, client = workload.attempt(scenario, name), _Client(chat, peer, ends=workload.ends)
        try:
            await attempt.agent(cast(Any, client), scenario)
        finally:
            attempt.close()
            peer.ended()
        return client.sampled

    names = [(case, f"{case.scenario_id}/{n}") for case in scenarios for n in range(workload.limits.attempts)]
    peer.began(len(names))
    return sum(await asyncio.gather(*(one(case, name) for case, name in names)))

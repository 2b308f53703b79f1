"""What an attempt happens in: a scenario, and an environment with tools and, perhaps, a truth of its own."""

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from strop.trajectory.model import Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One task instance. `data` is JSON and may be shown to the agent: no answers in it."""

    scenario_id: str
    data: Mapping[str, Any] = field(default_factory=dict)


class Truth(Protocol):
    """A label that training never sees: `value` in [0, 1], and the first assistant message that went
    wrong, counted from 0, or None."""

    @property
    def value(self) -> float: ...

    @property
    def first_wrong_step(self) -> int | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """The plainest Truth."""

    value: float
    first_wrong_step: int | None = None


class Environment(Protocol):
    """The world of one attempt; single use.

    `messages` open the conversation (system, user); `tools` are OpenAI tool schemas.
    """

    @property
    def messages(self) -> Sequence[Message]: ...

    @property
    def tools(self) -> Sequence[Mapping[str, Any]]: ...

    @property
    def done(self) -> bool:
        """True once nothing more can happen; the agent is not asked again."""
        ...

    def call(self, name: str, arguments: Mapping[str, Any]) -> str | Awaitable[str]:
        """Execute one tool call and return the text of its result.

        Only asked for tools it offers, with a JSON object. A refusal is a result; an exception
        means that the world itself is broken and makes the attempt a failure.
        """
        ...

    def truth(self, messages: Sequence[Message]) -> Truth | None:
        """What really came of it, given the whole conversation; None where it cannot tell."""
        ...

    def close(self) -> None:
        """Free what it holds."""
        ...

"""What an agent is: an async function of an ordinary OpenAI client and a scenario."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from strop.rollout.environment import Scenario, Truth
from strop.trajectory.model import Message

if TYPE_CHECKING:
    from openai import AsyncOpenAI


class Agent(Protocol):
    """Does one attempt at a scenario. Every model call must go through `client`; it is recorded there.

    Returns the conversation, or None to have it taken from the last recorded call. May raise: the
    attempt becomes a recorded failure.
    """

    def __call__(self, client: AsyncOpenAI, scenario: Scenario, /) -> Awaitable[Sequence[Message] | None]: ...


def _unknown(_messages: Sequence[Message]) -> Truth | None:
    return None


def _nothing() -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """An agent ready for one attempt, how to learn the truth afterwards, and what to free at the end.

    `truth` is asked once, after the attempt, with the conversation; training and judge never see it.
    """

    agent: Agent
    truth: Callable[[Sequence[Message]], Truth | None] = _unknown
    close: Callable[[], None] = _nothing


MakeAttempt = Callable[[Scenario, str], Attempt]
"""Makes the attempt of a scenario under its trajectory id, from which its randomness is derived."""

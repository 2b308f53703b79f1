"""What the runner needs of whoever records model calls (the gateway)."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from strop.trajectory.model import Message, Turn


class RecordedCall(Protocol):
    """One model call as it went over the wire, and the turn behind it.

    `turn.message_index` is not yet meaningful: only the whole conversation tells.
    """

    @property
    def messages(self) -> Sequence[Message]: ...

    @property
    def tools(self) -> Sequence[Mapping[str, Any]]: ...

    @property
    def reply(self) -> Message: ...

    @property
    def turn(self) -> Turn: ...


class Sessions(Protocol):
    """One recorded endpoint an attempt."""

    def open(self, keys: Sequence[str], temperature: float | None = None) -> Mapping[str, str]:
        """Open all sessions of a rollout at once, in this order; base URLs by key.

        Calls are sampled at `temperature`, whatever the agent asks for; None: as it asks.
        """
        ...

    def lost(self, key: str) -> str | None:
        """Why a call of this session got no answer though nothing was wrong with it; None: none was lost."""
        ...

    def waits(self, key: str) -> bool:
        """Whether other sessions must end before this one is answered: its time does not run yet."""
        ...

    async def ready(self) -> None:
        """Return once calls can be answered. Raises EngineError where none ever will."""
        ...

    def take(self, key: str) -> Sequence[RecordedCall]:
        """End a session and take its calls, in the order in which they were answered."""
        ...

"""A client for every event loop that asks, closed when its loop ends."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from strop.judge.pace import Pace

if TYPE_CHECKING:
    import openai


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One event loop's way to the server."""

    client: "openai.AsyncOpenAI"
    pace: Pace
    end: AsyncGenerator[None, None]


class Connections:
    """The lines of the loops that asked, so that an endpoint outlives `asyncio.run`.

    A client belongs to the loop that it first ran in. When that loop shuts down its asynchronous
    generators, as `asyncio.run` does, the client is closed; a loop that is closed without that leaves
    its sockets to the garbage collector. `borrowed`: the clients are somebody else's to close.
    """

    def __init__(
        self,
        open_client: Callable[[], "openai.AsyncOpenAI"],
        start_pace: Callable[[Pace | None], Pace],
        *,
        borrowed: bool,
    ) -> None:
        self._open_client = open_client
        self._start_pace = start_pace
        self._borrowed = borrowed
        self._lines: dict[asyncio.AbstractEventLoop, Line] = {}
        self._latest: Pace | None = None

    async def line(self) -> Line:
        """The running loop's line, opened at its first call."""
        loop = asyncio.get_running_loop()
        line = self._lines.get(loop)
        if line is None:
            self._lines = {other: kept for other, kept in self._lines.items() if not other.is_closed()}
            line = self._lines[loop] = self._open()
            await anext(line.end)
        return line

    async def close(self) -> None:
        """Close the running loop's client; others are closed with their loops. Again does nothing."""
        line = self._lines.pop(asyncio.get_running_loop(), None)
        if line is not None:
            await line.end.aclose()

    def _open(self) -> Line:
        client = self._open_client()
        self._latest = self._start_pace(self._latest)
        return Line(client=client, pace=self._latest, end=self._until_the_end(client))

    async def _until_the_end(self, client: "openai.AsyncOpenAI") -> AsyncGenerator[None, None]:
        loop = asyncio.get_running_loop()
        try:
            yield
        finally:
            self._lines.pop(loop, None)
            if not self._borrowed:
                await client.close()

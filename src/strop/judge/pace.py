"""How many requests are with a server at once, and when the next may go."""

import asyncio
import math
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

CAREFULLY = 0.25

OnWait = Callable[[str, float], None]
"""Told the reason and the seconds when a request waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """Seconds that only grow, and a way to let them pass."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


class Pace:
    """The turns of one event loop's requests at one server.

    There is no limit until the server first says that it is overloaded. Then as many may be there at
    once as half of those that were, and with each success a little more (additive increase,
    multiplicative decrease: Chiu and Jain, 1989), less again where it last was too much. While the
    server asks for patience nobody goes.
    `before` is another loop's pace, whose limit and gate this one takes over.
    """

    def __init__(self, clock: Clock, on_wait: OnWait, before: "Pace | None" = None) -> None:
        self.limit: float = before.limit if before else math.inf
        self._too_many: float = before._too_many if before else math.inf
        self._opens: float = before._opens if before else -math.inf
        self._reason: str = before._reason if before else ""
        self._clock = clock
        self._on_wait = on_wait
        self._there = 0
        self._cuts = 0
        self._queue: deque[asyncio.Future[None]] = deque()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[int]:
        """Lasts while a request is with the server. Yields what `slow_down` wants to be told."""
        await self._enter()
        while (wait := self._opens - self._clock.now()) > 0:
            self._leave()
            self._on_wait(self._reason, wait)
            await self._clock.sleep(wait)
            await self._enter()
        try:
            yield self._cuts
        finally:
            self._leave()

    def slow_down(self, turn: int) -> None:
        """Halve the limit. Of the requests that one overload turned away only the first does."""
        if turn == self._cuts:
            self._cuts += 1
            self._too_many = min(self.limit, self._there)
            self.limit = max(1.0, self._too_many / 2)

    def speed_up(self) -> None:
        """A request went well: by the time that all have, one more may go, or a part of one."""
        careful = self.limit + 1 > self._too_many
        self.limit += (CAREFULLY if careful else 1.0) / self.limit
        self._call_in()

    def hold(self, seconds: float, reason: str) -> None:
        """Nobody goes for so long."""
        opens = self._clock.now() + seconds
        if opens > self._opens:
            self._opens, self._reason = opens, reason

    async def _enter(self) -> None:
        if not self._queue and self._there + 1 <= self.limit:
            self._there += 1
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place in self._queue:
                self._queue.remove(place)
            elif not place.cancelled():
                self._leave()
            raise

    def _leave(self) -> None:
        self._there -= 1
        self._call_in()

    def _call_in(self) -> None:
        while self._queue and self._there + 1 <= self.limit:
            place = self._queue.popleft()
            if not place.done():
                self._there += 1
                place.set_result(None)

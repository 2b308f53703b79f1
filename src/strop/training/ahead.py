"""Rollouts that begin before the policy is there that will be trained on them."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from strop.trajectory.model import Group

T = TypeVar("T")

Collect = Callable[[int], Awaitable[Sequence[Group]]]


class Ahead:
    """Collects the attempts of each step below `steps`, up to `most` steps ahead of the one being trained.

    A rollout begins when the one `most` steps before it has been taken, so that the policy that samples it
    is at most `most` versions older than the one that is trained on it. With `most` = 0 nothing is begun
    before it is asked for.
    """

    def __init__(self, collect: Collect, most: int, steps: int) -> None:
        self._collect, self._most, self._steps = collect, most, steps
        self._running: dict[int, asyncio.Future[Sequence[Group]]] = {}

    async def take(self, step: int) -> Sequence[Group]:
        """The attempts of a step; those of the steps after it are on their way then."""
        if not self._most:
            return await self._collect(step)
        self._begin(step)
        groups = await self._running[step]
        del self._running[step]
        for later in range(step + 1, min(step + self._most + 1, self._steps)):
            self._begin(later)
        return groups

    async def abandon(self) -> None:
        """Stop what is on its way, and wait for that."""
        running, self._running = list(self._running.values()), {}
        for rollout in running:
            rollout.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _begin(self, step: int) -> None:
        if step not in self._running:
            self._running[step] = asyncio.ensure_future(self._collect(step))


async def aside(work: Callable[[], T], *, threaded: bool) -> T:
    """`work()`; in a thread where rollouts are to go on meanwhile.

    Cancelled, it waits for the end of the work all the same: an update is never left in its middle.
    """
    if not threaded:
        return work()
    running = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.gather(running, return_exceptions=True)
        raise

"""Run the work of a request only as long as somebody wants it."""

import asyncio
from typing import Any, TypeVar

from starlette.types import Receive

T = TypeVar("T")


class ClientGone(Exception):
    """The client closed the connection before it was answered."""


class WorkCancelled(Exception):
    """The work was cancelled from outside, though the client still waits."""


async def while_connected(receive: Receive, work: "asyncio.Future[T]") -> T:
    """Result of `work`, which is cancelled and raises ClientGone as soon as the client disconnects.

    The request's body must have been read. Cancelling this coroutine cancels the work too. Raises
    WorkCancelled where somebody else cancelled the work.
    """
    gone = asyncio.ensure_future(_disconnected(receive))
    try:
        both: set[asyncio.Future[Any]] = {work, gone}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            raise ClientGone
        if work.cancelled():
            raise WorkCancelled
        return work.result()
    finally:
        await cancelled(work, gone)


async def cancelled(*work: "asyncio.Future[Any]") -> None:
    """Cancel what still runs, and wait until it has ended."""
    for one in work:
        one.cancel()
    await asyncio.gather(*work, return_exceptions=True)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass

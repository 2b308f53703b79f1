"""Clients of OpenAI-compatible servers. The SDK is loaded when the first client is made."""

import asyncio
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_pools: "WeakKeyDictionary[asyncio.AbstractEventLoop, Any]" = WeakKeyDictionary()
"""One pool of connections for each event loop: connections cannot move between loops."""


def client(base_url: str, api_key: str, timeout_s: float, max_retries: int = 0) -> "AsyncOpenAI":
    """A client of the server at `base_url`. `timeout_s` bounds one request, in seconds.

    All clients of one event loop share its connections, so making one is cheap, and closing one
    leaves the others alone; `close_connections` ends them. Must be called inside a running loop.
    """
    import openai

    loop = asyncio.get_running_loop()
    if loop not in _pools:
        _pools[loop] = _pool_class()()
    return openai.AsyncOpenAI(
        base_url=base_url,
        api_key=api_key,
        timeout=timeout_s,
        max_retries=max_retries,
        http_client=_pools[loop],
    )


async def close_connections() -> None:
    """Close the connections of the running loop's clients; later clients get new ones."""
    pool = _pools.pop(asyncio.get_running_loop(), None)
    if pool is not None:
        await pool.close_pool()


@lru_cache(maxsize=1)
def _pool_class() -> type:
    import openai

    class Pool(openai.DefaultAsyncHttpxClient):
        """The SDK's own HTTP client (1000 connections, 100 kept alive), owned by no single client."""

        async def aclose(self) -> None:
            """Ignored, as a client that is closed must not close the others' connections."""

        async def close_pool(self) -> None:
            await super().aclose()

    return Pool

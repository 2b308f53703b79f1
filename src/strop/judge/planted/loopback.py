"""HTTP/1.1 on loopback from a thread of its own, for a server that has to misbehave on command.

An ordinary server library takes care that no connection breaks off and no port is left; here both
are wanted. Requests need a Content-Length; connections are kept alive.
"""

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from functools import partial
from http.client import responses
from typing import Any, TypeVar

MOST_HEAD_BYTES = 65_536
MOST_BODY_BYTES = 64 * 2**20
_WAIT_S = 10.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One HTTP request; header names in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """What is sent back. With `broken` the connection is closed half-way through the body."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    broken: bool = False

    def encode(self) -> bytes:
        """The bytes to send: all, or all but the body's second half."""
        head = [
            f"HTTP/1.1 {self.status} {responses.get(self.status, 'Unknown')}",
            "content-type: application/json",
        ]
        head += [f"{name}: {value}" for name, value in self.headers.items()]
        head += [f"content-length: {len(self.body)}", "", ""]
        body = self.body[: len(self.body) // 2] if self.broken else self.body
        return "\r\n".join(head).encode("latin-1") + body


Handler = Callable[[Call], Awaitable[Response]]
"""Answers a call. It is cancelled where the client leaves before its answer is there."""


class Loopback:
    """Serves `handler` at 127.0.0.1:`port`; from any thread, `stop` and `start` end and resume it.

    The port stays its own while it is stopped: a socket that does not listen holds it, and who
    connects is refused. `close` ends the thread; after it nothing can be started again.
    """

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._socket = _bound(0)
        self.port: int = self._socket.getsockname()[1]
        self._server: asyncio.Server | None = None
        self._connections: set[_Connection] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="planted-judge", daemon=True)
        self._thread.start()

    def start(self) -> None:
        """Listen. Where it does already: nothing."""
        self.do(self._start())

    def stop(self) -> None:
        """Break all connections and listen no more. Where it is stopped: nothing."""
        self.do(self._stop())

    def close(self) -> None:
        """Stop, free the port and end the thread. Again: nothing."""
        if self._loop.is_closed():
            return
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_WAIT_S)
        self._socket.close()
        self._loop.close()

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` in the server's own thread and wait for it, so that nothing races with requests."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_WAIT_S)

    async def _start(self) -> None:
        if self._server is None:
            made = partial(_Connection, self._handler, self._connections)
            self._server = await self._loop.create_server(made, sock=self._socket, backlog=2048)

    async def _stop(self) -> None:
        if self._server is None:
            return
        self._server.close()
        self._server = None
        self._socket = _bound(self.port)
        running = [connection.abort() for connection in list(self._connections)]
        await asyncio.gather(*(task for task in running if task is not None), return_exceptions=True)


class _Connection(asyncio.Protocol):
    """Takes one request after the other off a connection and answers each before the next."""

    def __init__(self, handler: Handler, connections: set["_Connection"]) -> None:
        self._handler = handler
        self._connections = connections
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None

    def abort(self) -> "asyncio.Task[None] | None":
        """Break the connection now; gives the task that was answering, already cancelled."""
        task = self._task
        if self._transport is not None:
            self._transport.abort()
        if task is not None:
            task.cancel()
        return task

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self._transport = None
        self._connections.discard(self)
        if self._task is not None:
            self._task.cancel()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._next()

    def _next(self) -> None:
        if self._task is not None or self._transport is None:
            return
        taken = _take(self._buffer)
        if isinstance(taken, Response):
            self._transport.write(taken.encode())
            self._transport.close()
        elif taken is not None:
            self._task = asyncio.get_running_loop().create_task(self._answer(taken))
            self._task.add_done_callback(self._answered)

    async def _answer(self, call: Call) -> None:
        response = await self._handler(call)
        if self._transport is not None:
            self._transport.write(response.encode())
            if response.broken:
                self._transport.close()

    def _answered(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if task.cancelled():
            return
        if task.exception() is not None and self._transport is not None:
            self._transport.abort()
        self._next()


def _take(buffer: bytearray) -> Call | Response | None:
    """The first whole request, taken off the buffer; None while it is not all there; or a refusal."""
    end = buffer.find(b"\r\n\r\n")
    if end < 0 or end > MOST_HEAD_BYTES:
        return None if len(buffer) <= MOST_HEAD_BYTES else Response(status=431, body=b"")
    lines = buffer[:end].decode("latin-1").split("\r\n")
    headers = {
        name.strip().lower(): value.strip() for name, _, value in (s.partition(":") for s in lines[1:])
    }
    first = lines[0].split(" ")
    stated = headers.get("content-length", "0")
    if len(first) != 3 or not stated.isdecimal():
        return Response(status=400, body=b"")
    if "transfer-encoding" in headers:
        return Response(status=411, body=b"")
    if int(stated) > MOST_BODY_BYTES:
        return Response(status=413, body=b"")
    begin, stop = end + 4, end + 4 + int(stated)
    if len(buffer) < stop:
        return None
    body = bytes(buffer[begin:stop])
    del buffer[:stop]
    return Call(method=first[0], path=first[1], headers=headers, body=body)


def _bound(port: int) -> socket.socket:
    """A socket that holds the port on loopback without listening, so that who connects is refused."""
    holder = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.setblocking(False)
    holder.bind(("127.0.0.1", port))
    return holder

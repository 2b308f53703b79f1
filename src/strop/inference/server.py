"""Serve an ASGI app from a thread of its own, on loopback by default."""

import asyncio
import json
import socket
import threading
from typing import Any

import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from strop.errors import InputError, Unreachable

_START_S = 30.0
_STOP_S = 5.0


class RunningServer:
    """A server that answers at `url` until it is closed."""

    def __init__(self, server: "_Server", thread: threading.Thread, url: str) -> None:
        self.url = url
        self._server = server
        self._thread = thread

    def close(self) -> None:
        """Refuse what is still asked, cancel what still runs, end the thread. Again: does nothing."""
        self._server.stop()
        if self._thread is not threading.current_thread():
            self._thread.join(_STOP_S)

    def __enter__(self) -> "RunningServer":
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()


def serve(app: ASGIApp, host: str = "127.0.0.1", port: int = 0) -> RunningServer:
    """Serve `app`; returns once it answers. Port 0 takes a free one.

    Raises InputError where the address cannot be used, with the reason (a port in use).
    """
    listener = _listener(host, port)
    server = _Server(_Requests(app))
    thread = threading.Thread(target=server.run, args=([listener],), name="strop-server", daemon=True)
    thread.start()
    if not server.ready.wait(_START_S) or not server.started:
        server.should_exit = True
        listener.close()
        raise Unreachable(f"the server on {host} did not start")
    name = f"[{host}]" if ":" in host else host
    return RunningServer(server, thread, f"http://{name}:{listener.getsockname()[1]}")


class _Server(uvicorn.Server):
    """Tells when it has started or failed to, and ends running requests when it is stopped."""

    def __init__(self, requests: "_Requests") -> None:
        super().__init__(_config(requests))
        self.ready = threading.Event()
        self._requests = requests
        self._loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        try:
            await super().startup(sockets)
        finally:
            self.ready.set()

    def stop(self) -> None:
        """Ask it to end, from any thread."""
        self.should_exit = True
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._requests.end)


class _Requests:
    """An app whose running requests can be ended without a word in the log."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._running: set[asyncio.Task[Any]] = set()
        self._ending = False

    def end(self) -> None:
        """Cancel all requests; those that have not begun to answer get status 503."""
        self._ending = True
        for task in self._running:
            task.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        task = asyncio.current_task()
        assert task is not None
        begun = False

        async def noting(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        self._running.add(task)
        try:
            await self._app(scope, receive, noting)
        except asyncio.CancelledError:
            if not self._ending:
                raise
            await _give_up(send, begun)
        finally:
            self._running.discard(task)


async def _give_up(send: Send, begun: bool) -> None:
    body = b""
    if not begun:
        said = {"message": "the server is closing", "type": "server_error", "param": None, "code": "closing"}
        body = json.dumps({"error": said}).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _config(app: ASGIApp) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        lifespan="off",
        ws="none",
        access_log=False,
        log_config=None,
        log_level="error",
        backlog=2048,
        timeout_keep_alive=60,
        timeout_graceful_shutdown=1,
    )


def _listener(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except (OSError, OverflowError) as error:
        listener.close()
        said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InputError(f"cannot serve on {host} port {port}: {said}; choose another --port") from error
    return listener

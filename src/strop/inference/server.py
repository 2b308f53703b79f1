"""Serve an ASGI app from a thread of its own, on loopback by default."""

import socket
import threading
from typing import Any

import uvicorn

from strop.errors import InputError, Unreachable

_START_S = 30.0
_STOP_S = 5.0


class RunningServer:
    """A server that answers at `url` until it is closed."""

    def __init__(self, server: uvicorn.Server, thread: threading.Thread, url: str) -> None:
        self.url = url
        self._server = server
        self._thread = thread

    def close(self) -> None:
        """Stop answering, drop what is still connected, end the thread. Calling it again does nothing."""
        self._server.should_exit = True
        if self._thread is not threading.current_thread():
            self._thread.join(_STOP_S)

    def __enter__(self) -> "RunningServer":
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()


def serve(app: Any, host: str = "127.0.0.1", port: int = 0) -> RunningServer:
    """Serve `app`; returns once it answers. Port 0 takes a free one.

    Raises InputError where the address cannot be used, with the reason (a port in use).
    """
    listener = _listener(host, port)
    server = _QuietServer(_config(app))
    thread = threading.Thread(target=server.run, args=([listener],), name="strop-server", daemon=True)
    thread.start()
    if not server.ready.wait(_START_S) or not server.started:
        server.should_exit = True
        listener.close()
        raise Unreachable(f"the server on {host} did not start")
    name = f"[{host}]" if ":" in host else host
    return RunningServer(server, thread, f"http://{name}:{listener.getsockname()[1]}")


class _QuietServer(uvicorn.Server):
    """Leaves signals to the process, and tells when it has started or failed to."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().startup(sockets)
        finally:
            self.ready.set()


def _config(app: Any) -> uvicorn.Config:
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

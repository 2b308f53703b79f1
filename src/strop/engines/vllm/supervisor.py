"""Watches the server, starts it again when it is lost, and puts back what it served."""

import threading
import time
from collections.abc import Callable

from strop.engines.serving import Hears
from strop.engines.vllm.availability import Availability
from strop.engines.vllm.control import Control
from strop.engines.vllm.server import Server
from strop.errors import InputError, StropError, in_one_line

POLL_S = 0.5
HUNG_AFTER_S = 60.0
"""A busy server may be slow to say that it lives; one that says nothing for so long is taken for dead."""
OK = 200


class Supervisor:
    """One thread that brings the server up and keeps it up.

    `restore` puts the served adapters back on a server that has just come up, and proves them. `chores` is
    called between two looks. `answered` counts the answers so far: `max_restarts` bounds the restarts in a
    row with none between them. `tell(kind, **fields)` hears what happens.
    """

    def __init__(
        self,
        server: Server,
        control: Control,
        availability: Availability,
        *,
        restore: Callable[[], None],
        chores: Callable[[], None],
        answered: Callable[[], int],
        tell: Hears,
        start_timeout_s: float,
        max_restarts: int,
    ) -> None:
        self._server, self._control, self._availability = server, control, availability
        self._restore, self._chores, self._answered, self._tell = restore, chores, answered, tell
        self._start_timeout_s, self._max_restarts = start_timeout_s, max_restarts
        self._closing = threading.Event()
        self._nudged = threading.Event()
        self._reported: str | None = None
        self._fruitless = 0
        self._seen = 0
        self._heard = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="strop-vllm-supervisor", daemon=True)

    def start(self) -> None:
        """Begin; returns at once."""
        self._thread.start()

    def nudge(self) -> None:
        """There is something to look at now."""
        self._nudged.set()

    def report(self, why: str) -> None:
        """Somebody found out that the server cannot be used as it is."""
        self._reported = why
        self.nudge()

    def close(self) -> None:
        """Look no more, and end the server."""
        self._closing.set()
        self._nudged.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._server.stop()

    def _run(self) -> None:
        try:
            self._look_after()
        except Exception as crash:  # noqa: BLE001 - the thread's boundary: whoever waits is told
            self._availability.give_up(f"nobody looks after vLLM any more: {in_one_line(crash)}")

    def _look_after(self) -> None:
        cause = self._brought_up()
        if cause is not None:
            # What never came up will not come up again: its Python, its arguments or the memory do not fit.
            self._availability.give_up(f"vLLM did not start: {cause}{_indented(self._server.tail())}")
        while not self._closing.is_set() and self._availability.given_up is None:
            if cause is None:
                self._nudged.wait(POLL_S)
                self._nudged.clear()
                self._chores()
                cause = self._lost()
            else:
                cause = self._again(cause)

    def _again(self, cause: str) -> str | None:
        """Bring it up once more. Returns why that failed, if it did."""
        tail = self._server.tail()
        self._availability.down(cause)
        self._tell("server_lost", cause=cause, log=tail)
        answered = self._answered()
        self._fruitless = 1 if answered > self._seen else self._fruitless + 1
        self._seen = answered
        if self._fruitless > self._max_restarts:
            tried = f"started again {self._max_restarts} times, it answered nothing"
            self._availability.give_up(f"vLLM is lost, {tried}: {cause}{_indented(tail)}")
            return cause
        began = time.monotonic()
        failed = self._brought_up()
        if failed is None:
            self._tell("server_restored", seconds=time.monotonic() - began)
        return failed

    def _brought_up(self) -> str | None:
        """Start it, wait until it answers, put back what it served. Returns why that failed, if it did."""
        began = time.monotonic()
        try:
            self._server.start()
        except OSError as error:
            return f"it could not be started: {error}"
        cause = self._awaited(began + self._start_timeout_s)
        if cause is not None:
            return cause
        try:
            self._restore()
        except InputError as error:
            self._availability.give_up(str(error))
            return str(error)
        except StropError as error:
            return in_one_line(error)
        self._heard = time.monotonic()
        self._tell("server_up", url=self._server.url, seconds=time.monotonic() - began)
        self._availability.up()
        return None

    def _awaited(self, until: float) -> str | None:
        while not self._closing.is_set():
            if self._control.health(self._server.url) == OK:
                return None
            ended = self._server.ended()
            if ended is not None:
                return f"{ended} before it answered"
            if time.monotonic() > until:
                return f"no answer within {self._start_timeout_s:g} s; raise [engine] start_timeout_s"
            self._closing.wait(POLL_S)
        return "closing"

    def _lost(self) -> str | None:
        """Why the server must be taken for dead; None while it lives."""
        reported, self._reported = self._reported, None
        ended = self._server.ended() or reported
        if ended is not None:
            return ended
        status = self._control.health(self._server.url)
        now = time.monotonic()
        if status == OK:
            self._heard = now
            self._availability.up()
            return None
        if status is not None:
            return f"it says that it is not well (status {status})"
        return "it does not answer" if now - self._heard > HUNG_AFTER_S else None


def _indented(tail: str) -> str:
    return "".join(f"\n  {line}" for line in tail.splitlines())

"""Who may ask now: so many sessions at a time, each from its first request until it is shut."""

import asyncio
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future


class Places:
    """Places for `count` of the sessions that are open; the others wait in the order in which they asked.

    vLLM takes turns among all that it is asked. With more sessions than it has room for, every one of them
    would end last, and where there is a deadline all would miss it rather than some. Thread-safe.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._open: set[str] = set()
        self._held: set[str] = set()
        self._waiting: deque[tuple[str, Future[None]]] = deque()
        self._lock = threading.Lock()

    def open(self, sessions: Sequence[str]) -> None:
        """These ask by places from now on."""
        with self._lock:
            self._open.update(sessions)

    def shut(self, session: str) -> None:
        """The session gives its place back, or waits no more. Unknown ones are ignored."""
        with self._lock:
            self._open.discard(session)
            self._held.discard(session)
            self._seat()

    def waits(self, session: str) -> bool:
        """Whether the session has none, as all places are taken."""
        with self._lock:
            return session in self._open and session not in self._held and len(self._held) >= self._count

    async def take(self, session: str | None) -> None:
        """Return once the session has a place, at once if it has one or is none of the open ones."""
        with self._lock:
            if session is None or session not in self._open or session in self._held:
                return
            turn: Future[None] = Future()
            self._waiting.append((session, turn))
            self._seat()
        await asyncio.wrap_future(turn)

    def _seat(self) -> None:
        """Let those who wait have what is free; who was shut meanwhile goes on without."""
        while self._waiting:
            session, turn = self._waiting[0]
            wants = session in self._open and session not in self._held and not turn.cancelled()
            if wants and len(self._held) >= self._count:
                return
            self._waiting.popleft()
            if turn.set_running_or_notify_cancel():
                if session in self._open:
                    self._held.add(session)
                turn.set_result(None)

"""An event loop whose time passes only while nobody has anything to do.

Sleeps and deadlines then cost nothing, and come in the order of their times however slow the machine
is. It knows nothing of threads and sockets: a test of those has to wait for what happens instead.
"""

import asyncio
import selectors
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

T = TypeVar("T")


class _Jumping(selectors.BaseSelector):
    """A selector that does not wait: the time that it was to wait has passed at once."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._real = selectors.DefaultSelector()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("everybody waits, and for nothing that could happen")
        found = self._real.select(0)
        if not found:
            self.seconds += max(0.0, timeout)
        return found

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._real.unregister(fileobj)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._real.get_map()

    def close(self) -> None:
        self._real.close()


class VirtualTime(asyncio.SelectorEventLoop):
    """Its `time()` begins at 0."""

    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.seconds


def run(work: Coroutine[Any, Any, T]) -> T:
    """As `asyncio.run`, in virtual time."""
    with asyncio.Runner(loop_factory=VirtualTime) as runner:
        return runner.run(work)

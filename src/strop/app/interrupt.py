"""Ctrl-C in two stages: the first asks for an end in good order, the second ends at once."""

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(slots=True)
class Interrupts:
    """How often Ctrl-C was heard."""

    count: int = 0


@contextmanager
def in_two_stages(stop: Callable[[], None], heard: Interrupts) -> Iterator[None]:
    """While the block lasts the first Ctrl-C calls `stop` and the second cancels the running task.

    They are counted in `heard`. Where the platform or the thread allows no handler, Ctrl-C does what it
    always did.
    """
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None

    def on_interrupt() -> None:
        heard.count += 1
        if heard.count == 1:
            stop()
        else:
            task.cancel()

    try:
        loop.add_signal_handler(signal.SIGINT, on_interrupt)
    except (NotImplementedError, RuntimeError, ValueError):
        yield
        return
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)

"""Whether the server can be asked: up, being brought up, or given up. What others wait for."""

import threading
from collections.abc import Callable

from strop.errors import EngineError, ServerLost


class Availability:
    """Thread-safe. It starts as down; `give_up` is for good.

    `doubted()` is called when somebody got no answer: it then counts as down until whoever looks after it has
    seen that it is up.
    """

    def __init__(self, doubted: Callable[[], None]) -> None:
        self._doubted = doubted
        self._changed = threading.Condition()
        self._up = False
        self._why = "it is starting"
        self._given_up: str | None = None

    @property
    def given_up(self) -> str | None:
        """Why there will be no answer any more."""
        return self._given_up

    def up(self) -> None:
        """From now on it can be asked."""
        with self._changed:
            self._up = self._given_up is None
            self._changed.notify_all()

    def down(self, why: str) -> None:
        """It cannot be asked, for now."""
        with self._changed:
            self._up, self._why = False, why

    def doubt(self, why: str) -> None:
        """Somebody got no answer; it may be gone."""
        self.down(why)
        self._doubted()

    def give_up(self, why: str) -> None:
        """It cannot be asked any more; the first reason stays."""
        with self._changed:
            self._up = False
            self._given_up = self._given_up or why
            self._changed.notify_all()

    def check(self) -> None:
        """Raise ServerLost where it is down, for now or for good."""
        with self._changed:
            if not self._up:
                raise ServerLost(self._given_up or f"vLLM cannot be asked now: {self._why}")

    def wait(self) -> None:
        """Return once it is up. Raises EngineError where it is given up."""
        with self._changed:
            self._changed.wait_for(lambda: self._up or self._given_up is not None)
            self._refuse_given_up()

    def _refuse_given_up(self) -> None:
        if self._given_up is not None:
            raise EngineError(self._given_up)

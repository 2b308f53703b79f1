"""Whether the server can be asked: up, being brought up, or given up. What others wait for."""

import threading

from strop.errors import EngineError, ServerLost


class Availability:
    """Thread-safe. It starts as down; `give_up` is for good.

    `lost` counts how often it went down after it had been up: what was asked before is not answered after.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._up = False
        self._why = "it is starting"
        self._given_up: str | None = None
        self.lost = 0

    @property
    def given_up(self) -> str | None:
        """Why there will be no answer any more."""
        return self._given_up

    def up(self) -> None:
        """From now on it can be asked."""
        with self._changed:
            self._up = True
            self._changed.notify_all()

    def down(self, why: str) -> None:
        """It cannot be asked, for now."""
        with self._changed:
            self.lost += self._up
            self._up, self._why = False, why

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

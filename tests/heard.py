"""Events as they come, to be waited for."""

import threading
from typing import Any


class Heard:
    """Hears what happens to who serves, from any thread. Nothing is waited for longer than `patience_s`."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self.all: list[tuple[str, dict[str, Any]]] = []
        self._more = threading.Condition()

    def __call__(self, kind: str, **fields: Any) -> None:
        with self._more:
            self.all.append((kind, fields))
            self._more.notify_all()

    def of(self, kind: str) -> list[dict[str, Any]]:
        """The fields of all events of a kind, the first one first."""
        return [fields for name, fields in self.all if name == kind]

    def wait_for(self, kind: str, times: int = 1) -> dict[str, Any]:
        """The fields of the event that is of this kind for the `times`-th time."""
        with self._more:
            there = self._more.wait_for(lambda: len(self.of(kind)) >= times, self._patience_s)
            assert there, f"no {kind} in {self.all}"
            return self.of(kind)[times - 1]

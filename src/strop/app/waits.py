"""What calls to a judge wait for at this moment."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Waits:
    """The longest wait that an endpoint told of and that is not over. `clock` gives seconds."""

    clock: Callable[[], float] = time.monotonic
    _reason: str = ""
    _until: float = field(default=-1.0)

    def note(self, reason: str, seconds: float) -> None:
        """A call waits for so long."""
        until = self.clock() + seconds
        if until >= self._until:
            self._reason, self._until = reason, until

    def now(self) -> tuple[str, float]:
        """The reason and the seconds left; "" and 0 where nothing waits."""
        left = self._until - self.clock()
        return (self._reason, left) if left > 0 else ("", 0.0)

"""Progress of judging on standard error: groups, calls, tokens, money, what is left, and why it waits."""

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

from strop.cli.cost import expected, spent
from strop.cli.progress import Clock, Display, Stretch, duration, open_display

if TYPE_CHECKING:
    from strop.app.sitting import Standing

WORTH_A_LINE_S = 3.0
"""A wait from which on it is said at once, also where progress is lines."""


class JudgeProgress:
    """The callable that judging tells how far it is."""

    def __init__(self, display: Display | None = None, clock: Clock = time.monotonic) -> None:
        self._display = display
        self._clock = clock
        self._stretch: Stretch | None = None

    def __call__(self, standing: "Standing") -> None:
        if self._display is None:
            self._display = open_display(sys.stderr)
        now = self._clock()
        self._stretch = (self._stretch or Stretch("judging", now)).at("judging", standing.done, now)
        seconds = self._stretch.left(standing.total, now)
        heading = "waiting" if standing.waiting_s >= WORTH_A_LINE_S else "judging"
        heading = "stopping; Ctrl-C again stops at once" if standing.stopping else heading
        parts = [
            spent(standing.cost) if standing.cost.calls else "",
            expected(standing.left),
            f"{duration(seconds)} left" if seconds is not None and standing.done < standing.total else "",
            f"waiting {standing.waiting_s:.0f} s: {standing.waiting}" if standing.waiting else "",
        ]
        self._display.show(heading, "  ".join(part for part in parts if part), standing.done, standing.total)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._display is not None:
            self._display.close()

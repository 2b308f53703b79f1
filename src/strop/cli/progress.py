"""Progress on standard error: the stage, the step and the time left; a bar, or lines without a terminal."""

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self, TextIO

Clock = Callable[[], float]


class Display(Protocol):
    """Where progress is shown."""

    def show(self, heading: str, left: str, done: int, total: int) -> None:
        """Show a stage and the time left, in words; `total` 0 means that its length is not known."""
        ...

    def close(self) -> None:
        """Show nothing more."""
        ...


class Progress:
    """The callable that a run tells of its progress: `progress(stage, done, total, step, steps)`.

    `done` of `total` units of `stage` are finished (`total` 0: not known); `step` of `steps` training
    steps are finished (`steps` 0: not in training). The time left is that of the training where
    enough of it is finished to tell, else that of the stage.
    """

    def __init__(self, display: Display | None = None, clock: Clock = time.monotonic) -> None:
        self._display = open_display(sys.stderr) if display is None else display
        self._clock = clock
        self._stage = Stretch("", clock())
        self._steps = Stretch("", clock())

    def __call__(self, stage: str, done: int = 0, total: int = 0, step: int = 0, steps: int = 0) -> None:
        now = self._clock()
        self._stage = self._stage.at(stage if not steps else f"{stage} of step {step}", done, now)
        self._steps = self._steps.at("training" if steps else "", step, now)
        left = self._steps.left(steps, now)
        if left is None:
            left = self._stage.left(total, now)
        heading = f"step {min(step + 1, steps)}/{steps}  {stage}" if steps else stage
        self._display.show(heading, "" if left is None else f"{duration(left)} left", done, total)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._display.close()


class Stretch:
    """A stretch of work of one name: where it began, and when its last unit ended."""

    def __init__(self, name: str, start: float, begun: int = 0) -> None:
        self.name, self.start, self.begun = name, start, begun
        self.done, self.last = begun, start

    def at(self, name: str, done: int, now: float) -> "Stretch":
        """This stretch after `done` units; a new one where the name changed or the count went back."""
        if name != self.name or done < self.done:
            return Stretch(name, now, done)
        if done > self.done:
            self.done, self.last = done, now
        return self

    def left(self, total: int, now: float) -> float | None:
        """Seconds left to `total` at the mean pace so far; None before the first unit ended here."""
        finished = self.done - self.begun
        if finished <= 0 or total <= 0:
            return None
        pace = (self.last - self.start) / finished
        return max(0.0, pace * (total - self.done) - (now - self.last))


def duration(seconds: float) -> str:
    """Minutes and seconds, "2:05"; from an hour on with hours, "1:02:05"."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"


def open_display(stream: TextIO) -> Display:
    """A moving bar on a terminal, lines elsewhere."""
    return BarDisplay(stream) if stream.isatty() else LineDisplay(stream)


class LineDisplay:
    """A line where the stage changes and, within one, at most every `every_s` seconds."""

    def __init__(self, stream: TextIO, every_s: float = 15.0, clock: Clock = time.monotonic) -> None:
        self._stream, self._every_s, self._clock = stream, every_s, clock
        self._start = self._last = clock()
        self._heading = ""

    def show(self, heading: str, left: str, done: int, total: int) -> None:
        now = self._clock()
        if heading == self._heading and now - self._last < self._every_s:
            return
        self._heading, self._last = heading, now
        parts = (heading, f"{done}/{total}" if total else "", left)
        text = "  ".join(part for part in parts if part)
        print(f"[{duration(now - self._start)}] {text}", file=self._stream, flush=True)

    def close(self) -> None:
        self._stream.flush()


class BarDisplay:
    """A bar that moves."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar

        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}", markup=False),
        )
        self._bar = Bar(*columns, console=Console(file=stream), transient=True)
        self._task = self._bar.add_task("", total=None, left="")
        self._bar.start()

    def show(self, heading: str, left: str, done: int, total: int) -> None:
        self._bar.update(self._task, description=heading, left=left, completed=done, total=total or None)

    def close(self) -> None:
        self._bar.stop()

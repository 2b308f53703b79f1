"""Where a run is: stage, step, seconds left; and how long each stage took."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Literal

Stage = Literal["rollout", "judge", "advantages", "update", "checkpoint", "publish"]
STAGES: tuple[Stage, ...] = ("rollout", "judge", "advantages", "update", "checkpoint", "publish")


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """`step` of `steps`, counted from 0, has come to `stage`. `seconds_left` to the end of the run,
    from the mean of the steps of this process so far; None in the first one."""

    stage: Stage
    step: int
    steps: int
    seconds_left: float | None


OnProgress = Callable[[Progress], None]


def ignore(_progress: Progress) -> None:
    """For nobody who watches."""


class StageClock:
    """Times the stages of one step after the other and tells a watcher of each that begins."""

    def __init__(self, steps: int, on_progress: OnProgress, now: Callable[[], float]) -> None:
        self._steps, self._tell, self._now = steps, on_progress, now
        self._seconds: dict[str, float] = {}
        self._step: int | None = None
        self._began = 0.0
        self._durations: list[float] = []

    @asynccontextmanager
    async def stage(self, stage: Stage, step: int) -> AsyncIterator[None]:
        """Around one stage. Its start is where a cancelled run stops: never inside an update."""
        await asyncio.sleep(0)
        self._begin(step)
        self._tell(Progress(stage=stage, step=step, steps=self._steps, seconds_left=self.seconds_left(step)))
        began = self._now()
        yield
        self._seconds[stage] = self._now() - began

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds by stage of the present step."""
        return dict(self._seconds)

    def seconds_left(self, step: int) -> float | None:
        """Mean seconds of the finished steps times the steps to do, less what this one has used."""
        if not self._durations:
            return None
        mean = sum(self._durations) / len(self._durations)
        return max(0.0, mean * (self._steps - step) - (self._now() - self._began))

    def _begin(self, step: int) -> None:
        if step == self._step:
            return
        now = self._now()
        if self._step is not None:
            self._durations.append(now - self._began)
        self._step, self._began, self._seconds = step, now, {}

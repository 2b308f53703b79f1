"""Many groups judged at once, and ended early in good order: nothing that was answered is lost."""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from strop.app.interrupt import Interrupts, in_two_stages
from strop.app.judging import Bench, One
from strop.config import JudgeConfig
from strop.errors import JudgeStopped, StropError
from strop.judge.forecast import Forecast, forecast
from strop.judge.verdict import Cost, Failure, Verdict
from strop.trajectory.model import Group

TICK_S = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How far judging is. `left` is the forecast for the groups left; `waiting` says why calls wait, for
    `waiting_s` more seconds."""

    done: int
    total: int
    cost: Cost
    left: Forecast
    waiting: str = ""
    waiting_s: float = 0.0
    stopping: bool = False


OnStanding = Callable[[Standing], None]


def unwatched(standing: Standing) -> None:
    """For nobody who watches."""


@dataclass(slots=True, kw_only=True)
class Sitting:
    """The judging of `groups`. After `hold()`: `verdicts` by place, those that there are.

    `ended` says why it ended early: the judge refused, failed `max_failures_in_a_row` times, or met a
    ceiling. Then, and after a first Ctrl-C, no call is begun and those in flight end; they are given
    one more timeout after an error, and none after a second Ctrl-C.
    """

    groups: Sequence[Group]
    bench: Bench
    config: JudgeConfig
    verdicts: dict[int, Verdict] = field(default_factory=dict)
    ended: StropError | None = None
    interrupts: Interrupts = field(default_factory=Interrupts)
    seconds: float = 0.0
    _workers: list[asyncio.Future[None]] = field(default_factory=list)
    _expected: Forecast | None = None

    async def hold(self, progress: OnStanding = unwatched) -> None:
        """Judge all groups. Raises nothing that the judge does: see `ended`."""
        begun = time.perf_counter()
        ticker = asyncio.ensure_future(self._tell(progress))
        try:
            with in_two_stages(self.bench.judge.stop, self.interrupts):
                await self._all()
        except asyncio.CancelledError:
            if self.interrupts.count < 2:
                raise
        finally:
            ticker.cancel()
            self.seconds = time.perf_counter() - begun
            await self.bench.judge.close()
        progress(self._standing())

    @property
    def left(self) -> int:
        """How many groups have no verdict."""
        return len(self.groups) - len(self.verdicts)

    @property
    def stopping(self) -> bool:
        """Whether no further call is begun."""
        return self.ended is not None or self.interrupts.count > 0

    async def _all(self) -> None:
        # An embedded judge's sampler waits for each of its sessions, so that all must be asking.
        width = len(self.groups) if self.config.embedded else min(self.config.concurrency, len(self.groups))
        places = iter(range(len(self.groups)))
        with self.bench.sitting(self.groups, "file") as one:
            self._workers = [asyncio.ensure_future(self._work(places, one)) for _ in range(width)]
            try:
                await asyncio.wait(self._workers, return_when=asyncio.FIRST_EXCEPTION)
            finally:
                self._cancel()
                ends = await asyncio.gather(*self._workers, return_exceptions=True)
        for end in ends:
            if isinstance(end, Exception):
                raise end

    async def _work(self, places: Iterator[int], one: One) -> None:
        for place in places:
            if self.stopping:
                return
            try:
                verdict = await one(self.groups[place])
            except JudgeStopped:
                # Between two calls of a group: what was answered is in the cache, the group is left.
                return
            except StropError as error:
                self._end(error)
                return
            self._take(place, verdict)

    def _take(self, place: int, verdict: Verdict) -> None:
        if verdict.failure is Failure.OVER_BUDGET:
            self._end(JudgeStopped(verdict.detail))
            return
        self.verdicts[place] = verdict
        dead = self.bench.judge.ledger.dead_after(self.config.max_failures_in_a_row)
        if dead is not None:
            self._end(JudgeStopped(f"{dead}; see to the judge"))

    def _end(self, why: StropError) -> None:
        if self.ended is None:
            self.ended = why
            self.bench.judge.stop()
            asyncio.get_running_loop().call_later(self.config.timeout_s, self._cancel)

    def _cancel(self) -> None:
        for worker in self._workers:
            worker.cancel()

    async def _tell(self, progress: OnStanding) -> None:
        while True:
            progress(self._standing())
            await asyncio.sleep(TICK_S)

    def _standing(self) -> Standing:
        ledger = self.bench.judge.ledger
        waiting, waiting_s = self.bench.waits.now()
        return Standing(
            done=len(self.verdicts),
            total=len(self.groups),
            cost=ledger.cost,
            left=self._forecast(),
            waiting=waiting,
            waiting_s=waiting_s,
            stopping=self.stopping,
        )

    def _forecast(self) -> Forecast:
        """Made anew after every tenth more groups, because it looks at all of them."""
        expected = self._expected
        made = 0 if expected is None else len(self.groups) - expected.groups_left
        if expected is None or not self.left or len(self.verdicts) > made * 1.1:
            expected = self._expected = forecast(self.bench.judge.ledger, self.left)
        return expected

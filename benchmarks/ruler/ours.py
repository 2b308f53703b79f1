"""Our judge over many groups: what it said, what it sent, and how long it took."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from strop.judge import Judge, JudgeSettings, Verdict
from strop.judge.ask import Answer, Ask, Request
from strop.trajectory.model import Group

Run = Callable[[Coroutine[Any, Any, "Judged"]], "Judged"]
"""Runs a coroutine to its end, in one event loop for all of them, so that connections stay open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """Verdicts in the order of the groups, with wall and CPU seconds of this process."""

    verdicts: Sequence[Verdict]
    seconds: float
    cpu_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How often a group is shown at first, and at most."""

    orders: int = 2
    max_orders: int = 4

    def settings(self, at_once: int) -> JudgeSettings:
        """Our defaults but for this and the number of calls at once."""
        return JudgeSettings(orders=self.orders, max_orders=self.max_orders, concurrency=at_once)


ONE_CALL = Way(orders=1, max_orders=1)
TWO_CALLS = Way(orders=2, max_orders=2)
DEFAULT = Way()


async def judged(ask: Ask, groups: Sequence[Group], way: Way, at_once: int) -> Judged:
    """Judge the groups, `at_once` of them and as many calls at a time."""
    judge, slots = Judge(ask, way.settings(at_once)), asyncio.Semaphore(at_once)

    async def one(group: Group) -> Verdict:
        async with slots:
            return await judge(group)

    began, cpu = time.perf_counter(), time.process_time()
    verdicts = await asyncio.gather(*map(one, groups))
    return Judged(
        verdicts=verdicts, seconds=time.perf_counter() - began, cpu_seconds=time.process_time() - cpu
    )


class Tape:
    """An `Ask` that keeps every request with its answer; once `recorded`, it answers from what it kept."""

    def __init__(self, ask: Ask) -> None:
        self.requests: list[Request] = []
        self.recorded = False
        self._ask = ask
        self._answers: dict[str, Answer | str] = {}

    async def __call__(self, request: Request) -> Answer | str:
        said = request.messages[-1]["content"]
        if not self.recorded:
            self.requests.append(request)
            self._answers[said] = await self._ask(request)
        return self._answers[said]

"""The judging of one training step: groups are judged together, or each as soon as it has been rolled out."""

import asyncio
from collections.abc import Sequence

from strop.app.judging import Bench, One
from strop.errors import JudgeStopped, StropError
from strop.judge.verdict import Verdict, apply
from strop.trajectory.model import Group

LAST_CALLS_S = 30.0
"""How long calls in flight may take to end once the judge has refused."""


class StepJudging:
    """Judges groups, whenever they are begun. An error ends it in good order: no call is begun after it,
    those in flight end, and `verdicts`, by group id, holds what there is."""

    def __init__(self, bench: Bench, part: str) -> None:
        self.verdicts: dict[str, Verdict] = {}
        self._bench, self._part = bench, part
        self._begun: set[str] = set()
        self._sittings: list[asyncio.Future[None]] = []
        self._error: StropError | None = None

    def begin(self, groups: Sequence[Group]) -> None:
        """Judge those of `groups` that are not begun yet, in a sitting of their own."""
        fresh = [group for group in groups if group.group_id not in self._begun]
        self._begun.update(group.group_id for group in fresh)
        if fresh and self._error is None:
            self._sittings.append(asyncio.ensure_future(self._sit(fresh)))

    async def ended(self) -> None:
        """Wait for all that was begun."""
        try:
            ends = await asyncio.gather(*self._sittings, return_exceptions=True)
        finally:
            await self.abandon()
        for end in ends:
            if isinstance(end, Exception):
                raise end

    async def abandon(self) -> None:
        """Stop at once and wait for that."""
        self._cancel()
        await asyncio.gather(*self._sittings, return_exceptions=True)

    def applied(self, groups: Sequence[Group]) -> list[Group]:
        """The groups, those with a verdict scored by it."""
        found = self.verdicts
        return [apply(g, found[g.group_id]) if g.group_id in found else g for g in groups]

    def raise_error(self) -> None:
        """Raise what the judge raised first, if anything, Unreachable for a refused key say."""
        if self._error is not None:
            raise self._error

    async def _sit(self, groups: Sequence[Group]) -> None:
        with self._bench.sitting(groups, self._part) as one:
            tasks = [asyncio.ensure_future(self._judge(one, group)) for group in groups]
            try:
                await asyncio.gather(*tasks)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _judge(self, one: One, group: Group) -> None:
        try:
            self.verdicts[group.group_id] = await one(group)
        except StropError as error:
            self._fail(error)

    def _fail(self, error: StropError) -> None:
        if self._error is not None and not isinstance(self._error, JudgeStopped):
            return
        first, self._error = self._error is None, error
        if first:
            self._bench.judge.stop()
            asyncio.get_running_loop().call_later(LAST_CALLS_S, self._cancel)

    def _cancel(self) -> None:
        for sitting in self._sittings:
            sitting.cancel()

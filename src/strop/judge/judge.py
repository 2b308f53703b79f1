"""Judging a group: shown in balanced orders, once more where they disagree, and merged into one verdict."""

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from strop.errors import JudgeStopped
from strop.judge.ask import Ask
from strop.judge.asking import Asking
from strop.judge.combine import reliability
from strop.judge.conclude import Outcome, conclude
from strop.judge.ledger import Ledger
from strop.judge.presentation import Plan, Presentation, make_plan
from strop.judge.prompt import Prompt
from strop.judge.rubric import default_rubric
from strop.judge.settings import ALONE, JudgeSettings
from strop.judge.sheet import make_sheet
from strop.judge.verdict import Failure, Verdict
from strop.judge.view import View
from strop.trajectory.model import Group, Trajectory

T = TypeVar("T")

TIED_SCORE = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """A group that is to be judged. `plan` is None where there is nothing to compare."""

    group_id: str
    judged: Sequence[Trajectory]
    plan: Plan | None


class Judge:
    """A judge: `await judge(group)` gives a Verdict. `ask` is an Endpoint or any async callable.

    Only trajectories that are not unscored are judged. Identical ones, by what the judge would read,
    are shown once and share a score. Fewer than two different ones compare with nothing: no call,
    every score 0.5, flag "identical" or "single", so that the group counts as tied (in the modes that
    judge each attempt alone they are judged). Orders and nonces come from the settings' seed and the
    texts: the same texts are shown in the same way in every run. Nothing that `ask` does raises,
    except that errors of strop's own pass (Unreachable for a refused key or an unknown model), and
    JudgeStopped is raised after `stop()` or after too many groups in a row without a verdict.
    """

    def __init__(
        self,
        ask: Ask,
        settings: JudgeSettings | None = None,
        rubric: str | None = None,
        view: View | None = None,
    ) -> None:
        self.ask = ask
        self.settings = settings or JudgeSettings()
        self.rubric = default_rubric() if rubric is None else rubric
        self.view = view or View()
        self.ledger = Ledger()
        self._asking = Asking(self.settings, self.ledger)

    async def __call__(self, group: Group, *, ask: Ask | None = None) -> Verdict:
        """Judge one group; `ask` takes the place of the judge's own for this group."""
        case = self._case(group)
        verdict = await self._verdict(case, ask or self.ask)
        self.ledger.record(verdict)
        dead = self.ledger.dead_after(self.settings.max_failures_in_a_row)
        if dead is not None:
            raise JudgeStopped(f"judge: {dead}")
        return verdict

    def prompts(self, group: Group) -> list[Prompt]:
        """The prompts of the first round for `group`, as they would be sent; none where no call is."""
        plan = self._case(group).plan
        return [shown.prompt for shown in plan.first_round()] if plan else []

    def stop(self) -> None:
        """Begin no further call. Those in flight end and are kept; then JudgeStopped is raised."""
        self._asking.stopped = True

    async def close(self) -> None:
        """Close the connections of an endpoint. Calling it again does nothing."""
        close = getattr(self.ask, "close", None)
        if close is not None:
            await close()

    def _case(self, group: Group) -> _Case:
        judged = [t for t in group.trajectories if t.unscored is None]
        sheet = make_sheet(judged, self.view) if judged else None
        least = 1 if self.settings.mode in ALONE else 2
        plan = None
        if sheet is not None and len(sheet.entries) >= least:
            plan = make_plan(sheet, self.rubric, self.settings, self.view)
        return _Case(group_id=group.group_id, judged=judged, plan=plan)

    async def _verdict(self, case: _Case, ask: Ask) -> Verdict:
        if case.plan is None:
            return _without_call(case)
        first = case.plan.first_round()
        outcomes = await self._round(ask, first)
        contested = self._contested(first, outcomes)
        further = case.plan.second_round(contested)
        outcomes += await self._round(ask, further)
        base = Verdict(group_id=case.group_id, failure=Failure.EMPTY, cut=case.plan.sheet.cut)
        return conclude(outcomes, self.settings.mode, self.settings.combine, base)

    async def _round(self, ask: Ask, presentations: Sequence[Presentation]) -> list[Outcome]:
        outcomes = await _together([self._asking.outcome(ask, shown) for shown in presentations])
        ended = [outcome for outcome in outcomes if outcome is not None]
        if len(ended) < len(presentations):
            raise JudgeStopped("judging was stopped; what was answered is kept")
        return ended

    def _contested(self, shown: Sequence[Presentation], outcomes: Sequence[Outcome]) -> list[int]:
        """The parts whose orders agree less than they should."""
        by_part: dict[int, list[Any]] = {}
        for one, outcome in zip(shown, outcomes, strict=True):
            if outcome.ballot is not None:
                by_part.setdefault(one.part, []).append(outcome.ballot)
        agreed = {part: reliability(ballots) for part, ballots in by_part.items()}
        return [
            part
            for part, share in agreed.items()
            if share is not None and share < self.settings.escalate_below
        ]


def _without_call(case: _Case) -> Verdict:
    return Verdict(
        group_id=case.group_id,
        scores={t.trajectory_id: TIED_SCORE for t in case.judged},
        flags=("identical" if len(case.judged) > 1 else "single",),
        detail="no call: there is nothing to compare",
    )


async def _together(calls: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """All of them at once; where one raises, the others are cancelled and waited for."""
    tasks = [asyncio.ensure_future(call) for call in calls]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

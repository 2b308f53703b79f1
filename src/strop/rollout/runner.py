"""Run N attempts at every scenario side by side. What goes wrong in one is data, and the others go on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from strop.errors import InputError
from strop.rollout.agent import Attempt, MakeAttempt
from strop.rollout.conversation import conversation
from strop.rollout.environment import Scenario
from strop.rollout.limits import Limits
from strop.rollout.record import Ending, Identity, assemble
from strop.rollout.sessions import Sessions
from strop.trajectory.grouping import grouped
from strop.trajectory.model import Group, Trajectory

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_log = logging.getLogger(__name__)

LONGEST_REASON = 300
MOST_LOST = 5
"""How often an attempt is made anew because the server was lost under it."""
GLANCE_S = 1.0
"""How often it is looked whether an attempt has a place."""
GRACE_S = 1.0
"""How long a cancelled agent may take to clean up before it is left behind."""


def _silent(_done: int, _total: int) -> None:
    return None


def _unheard(_group: Group) -> None:
    return None


def _unnoted(_trajectory_id: str, _reason: str) -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutPlan:
    """How to collect. `part` names the rollout in ids: a step ("train-0003") or a set ("heldout-before").

    `temperature` overrides what agents ask for, 0 for greedy. `api_key` is the recorder's;
    `on_attempt(done, total)` hears of every attempt that ended, `on_group` of every group, as soon as the
    last of its attempts has, `on_lost(trajectory_id, reason)` of every attempt that is made anew.
    """

    sessions: Sessions
    attempt: MakeAttempt
    part: str
    limits: Limits = field(default_factory=Limits)
    temperature: float | None = None
    api_key: str = "strop"
    on_attempt: Callable[[int, int], None] = _silent
    on_group: Callable[[Group], None] = _unheard
    on_lost: Callable[[str, str], None] = _unnoted


async def collect(scenarios: Sequence[Scenario], plan: RolloutPlan) -> list[Group]:
    """One group a scenario, `limits.attempts` trajectories each, in order of scenario and attempt.

    Ids are scenario/part/attempt. An agent that raises, outlives its deadline, calls no model or
    returns something else than a conversation gives a trajectory with `failure` (and `unscored`,
    so that training leaves it out). Truth is attached to attempts that ended. An attempt under which the
    server was lost, by no fault of the agent's, is thrown away whole and made anew when the server is back,
    at most MOST_LOST times: no trajectory holds turns from before and after. Cancelled, it stops every agent
    and ends every session. Raises InputError for a scenario id that is there twice, EngineError where the
    server does not come back.
    """
    slots = [slot for scenario in scenarios for slot in _slots(scenario, plan)]
    if len({scenario.scenario_id for scenario in scenarios}) < len(scenarios):
        raise InputError(f"{plan.part}: a scenario id is there twice; ids of trajectories would clash")
    urls = plan.sessions.open([slot.key for slot in slots], plan.temperature)
    async with _client(plan.api_key) as root:
        runs = [_Run(slot, plan, root.with_options(base_url=urls[slot.key])) for slot in slots]
        await _all(runs, plan)
    return grouped([run.trajectory() for run in runs])


async def _all(runs: Sequence[_Run], plan: RolloutPlan) -> None:
    tasks = [asyncio.ensure_future(run()) for run in runs]
    size = plan.limits.attempts
    open_groups = [runs[first : first + size] for first in range(0, len(runs), size)]
    try:
        for done, ended in enumerate(asyncio.as_completed(tasks), start=1):
            await ended
            plan.on_attempt(done, len(tasks))
            for members in [members for members in open_groups if all(run.ended for run in members)]:
                open_groups.remove(members)
                plan.on_group(grouped([run.trajectory() for run in members])[0])
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for run in runs:
            run.end_session()


@dataclass(frozen=True, slots=True)
class _Slot:
    scenario: Scenario
    identity: Identity

    @property
    def key(self) -> str:
        return self.identity.trajectory_id


class _Run:
    """One attempt from its open session to its trajectory."""

    def __init__(self, slot: _Slot, plan: RolloutPlan, client: AsyncOpenAI) -> None:
        self._slot, self._plan, self._client = slot, plan, client
        self._session_open = True
        self._trajectory: Trajectory | None = None

    async def __call__(self) -> None:
        for _ in range(MOST_LOST):
            lost = await self._once()
            if lost is None:
                return
            await self._anew(lost)
        if (lost := await self._once()) is not None:
            self._keep(Ending(failure=f"the server was lost under it {MOST_LOST + 1} times: {lost}"))

    async def _once(self) -> str | None:
        """One attempt, kept unless the server was lost under it. Returns why that was, if it was."""
        try:
            attempt = self._plan.attempt(self._slot.scenario, self._slot.key)
        except Exception as error:  # noqa: BLE001 - the boundary to a user's environment
            self._keep(Ending(failure=f"environment raised: {described(error)}"))
            return None
        try:
            ending = await self._drive(attempt)
            lost = self._plan.sessions.lost(self._slot.key)
            if lost is None:
                self._trajectory = with_truth(self._keep(ending), attempt)
            return lost
        finally:
            _close(attempt, self._slot.key)

    async def _anew(self, lost: str) -> None:
        """Throw away what there is, and open the session again once the server is back."""
        key, sessions = self._slot.key, self._plan.sessions
        self.end_session()
        self._plan.on_lost(key, lost)
        await sessions.ready()
        url = sessions.open([key], self._plan.temperature)[key]
        self._session_open = True
        self._client = self._client.with_options(base_url=url)

    @property
    def ended(self) -> bool:
        return self._trajectory is not None

    def trajectory(self) -> Trajectory:
        assert self._trajectory is not None
        return self._trajectory

    def end_session(self) -> None:
        """For sessions whose attempt never came to its end."""
        if self._session_open:
            self._session_open = False
            self._plan.sessions.take(self._slot.key)

    def _keep(self, ending: Ending) -> Trajectory:
        # Taken as soon as the attempt ends: the sampler must not wait for a session that asks no more.
        self._session_open = False
        calls = self._plan.sessions.take(self._slot.key)
        self._trajectory = assemble(self._slot.identity, ending, calls)
        return self._trajectory

    async def _drive(self, attempt: Attempt) -> Ending:
        agent = asyncio.ensure_future(self._guarded(attempt))
        try:
            await self._wait_for(agent)
        except asyncio.CancelledError:
            await _abandon(agent)
            raise
        if not agent.done():
            await _abandon(agent)
            return Ending(failure=f"deadline: no end after {self._plan.limits.deadline_s:g} s")
        return Ending(failure="agent raised: CancelledError") if agent.cancelled() else agent.result()

    async def _wait_for(self, agent: asyncio.Future[Ending]) -> None:
        """Return once the agent has ended or its time is over, which runs while it has a place."""
        clock, left = asyncio.get_running_loop().time, self._plan.limits.deadline_s
        while left > 0 and not agent.done():
            waits, began = self._plan.sessions.waits(self._slot.key), clock()
            await asyncio.wait({agent}, timeout=min(left, GLANCE_S))
            left -= 0.0 if waits else clock() - began

    async def _guarded(self, attempt: Attempt) -> Ending:
        try:
            returned = await attempt.agent(self._client, self._slot.scenario)
            return Ending(messages=conversation(returned))
        except InputError as error:
            return Ending(failure=str(error))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the boundary to a user's agent
            return Ending(failure=f"agent raised: {described(error)}")


def with_truth(trajectory: Trajectory, attempt: Attempt) -> Trajectory:
    """Attach the truth to an attempt that ended well.

    A truth check that raises leaves the truth unknown and says so in metadata.truth_error.
    """
    try:
        truth = None if trajectory.failure else attempt.truth(trajectory.messages)
    except Exception as error:  # noqa: BLE001 - the boundary to a user's truth check
        return replace(trajectory, metadata={**trajectory.metadata, "truth_error": described(error)})
    if truth is None:
        return trajectory
    return replace(trajectory, truth=truth.value, first_wrong_step=truth.first_wrong_step)


def described(error: BaseException) -> str:
    """One line: the type and the first line of the message, at most LONGEST_REASON characters."""
    first = next(iter(str(error).strip().splitlines()), "")
    return f"{type(error).__name__}: {first}"[:LONGEST_REASON]


def _close(attempt: Attempt, key: str) -> None:
    try:
        attempt.close()
    except Exception as error:  # noqa: BLE001 - the boundary to a user's environment
        _log.warning("%s: its environment could not be closed: %s", key, described(error))


async def _abandon(agent: asyncio.Future[Ending]) -> None:
    agent.cancel()
    await asyncio.wait({agent}, timeout=GRACE_S)


def _slots(scenario: Scenario, plan: RolloutPlan) -> list[_Slot]:
    group_id = f"{scenario.scenario_id}/{plan.part}"
    return [
        _Slot(
            scenario,
            Identity(
                trajectory_id=f"{group_id}/{attempt}",
                scenario_id=scenario.scenario_id,
                group_id=group_id,
                attempt=attempt,
            ),
        )
        for attempt in range(plan.limits.attempts)
    ]


def _client(api_key: str) -> AsyncOpenAI:
    from openai import AsyncOpenAI, DefaultAsyncHttpxClient

    # No environment proxies: the endpoint is this machine's. No retries: a failed call is recorded
    # as such. No timeout: deadlines are the runner's.
    http = DefaultAsyncHttpxClient(trust_env=False, timeout=None)
    return AsyncOpenAI(base_url="http://unset.invalid", api_key=api_key, http_client=http, max_retries=0)

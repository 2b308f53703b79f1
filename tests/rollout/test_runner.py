"""What can go wrong in an attempt is data: each case fails alone, with its reason, in its place."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

import virtual_time
from strop.errors import EngineError, InputError
from strop.rollout.agent import Attempt
from strop.rollout.environment import Label, Scenario
from strop.rollout.limits import Limits
from strop.rollout.runner import MOST_LOST, RolloutPlan, collect
from strop.trajectory.model import Group, Message, Trajectory, Turn

HI: Message = {"role": "user", "content": "hi"}
HELLO: Message = {"role": "assistant", "content": "hello"}
TURN = Turn(prompt_ids=(1,), sampled_ids=(2,), logprobs=(-0.1,), finish_reason="stop", message_index=0)


@dataclass(frozen=True)
class Call:
    messages: tuple[Message, ...] = (HI,)
    reply: Message = field(default_factory=lambda: HELLO)
    tools: tuple[Mapping[str, Any], ...] = ()
    turn: Turn = TURN


@dataclass
class Recorder:
    """Sessions without a network: an agent says itself that it called."""

    opened: list[str] = field(default_factory=list)
    taken: list[str] = field(default_factory=list)
    calls: dict[str, list[Call]] = field(default_factory=dict)
    losses: dict[str, str] = field(default_factory=dict)
    placed_at: float = 0.0
    gone: bool = False

    def open(self, keys: Sequence[str], temperature: float | None = None) -> dict[str, str]:
        self.opened += keys
        self.calls |= {key: [] for key in keys}
        return {key: f"http://recorder/{key}/v1" for key in keys}

    def take(self, key: str) -> list[Call]:
        self.taken.append(key)
        self.losses.pop(key, None)
        return self.calls[key]

    def lost(self, key: str) -> str | None:
        return self.losses.get(key)

    def waits(self, key: str) -> bool:
        """Nobody has a place before `placed_at`."""
        del key
        return asyncio.get_running_loop().time() < self.placed_at

    async def ready(self) -> None:
        if self.gone:
            raise EngineError("the server is lost for good")

    def call(self, client: Any) -> None:
        key = str(client.base_url).removeprefix("http://recorder/").removesuffix("/v1/")
        self.calls[key].append(Call())


Body = Callable[[Recorder, Any], Any]


def gather(
    bodies: Sequence[Body], truth: Callable[..., Any] = lambda _: Label(value=1.0), **limits: Any
) -> tuple[Sequence[Trajectory], Recorder]:
    """One scenario, one attempt a body."""
    recorder = Recorder()

    def attempt(_scenario: Scenario, trajectory_id: str) -> Attempt:
        body = bodies[int(trajectory_id.rsplit("/", 1)[1])]
        return Attempt(agent=lambda client, _: body(recorder, client), truth=truth)

    plan = RolloutPlan(
        sessions=recorder,
        attempt=attempt,
        part="train-0000",
        limits=Limits(attempts=len(bodies), **{"deadline_s": 5.0, **limits}),
    )
    groups = virtual_time.run(collect([Scenario(scenario_id="s")], plan))
    assert len(groups) == 1
    return groups[0].trajectories, recorder


async def good(recorder: Recorder, client: Any) -> list[Message]:
    recorder.call(client)
    return [HI, HELLO]


async def silent(recorder: Recorder, client: Any) -> None:
    recorder.call(client)


async def raises(recorder: Recorder, client: Any) -> None:
    recorder.call(client)
    raise ValueError("bad thing\nsecond line")


async def exits(_recorder: Recorder, _client: Any) -> None:
    raise SystemExit(3)


async def cancels_itself(_recorder: Recorder, _client: Any) -> None:
    raise asyncio.CancelledError


async def hangs(recorder: Recorder, client: Any) -> None:
    recorder.call(client)
    await asyncio.sleep(3600)


async def idle(_recorder: Recorder, _client: Any) -> list[Message]:
    return [HI, HELLO]


def returning(value: Any) -> Body:
    async def body(recorder: Recorder, client: Any) -> Any:
        recorder.call(client)
        return value

    return body


def not_async(_recorder: Recorder, _client: Any) -> int:
    return 7


@pytest.mark.parametrize(
    ("body", "failure", "turns"),
    [
        (raises, "agent raised: ValueError: bad thing", 1),
        (exits, "agent raised: SystemExit: 3", 0),
        (cancels_itself, "agent raised: CancelledError", 0),
        (hangs, "deadline: no end after 0.2 s", 1),
        (idle, "no model call", 0),
        (returning("text"), "agent returned str, not a list of messages or None", 1),
        (returning([]), "agent returned an empty list, not a list of messages or None", 1),
        (returning([HI, 5]), "agent returned messages of which number 1 is int without a role", 1),
        (
            returning([{"content": "x"}]),
            "agent returned messages of which number 0 is dict without a role",
            1,
        ),
        (not_async, "agent raised: TypeError: ", 0),
    ],
)
def test_a_failed_attempt_is_recorded_and_the_others_go_on(body: Body, failure: str, turns: int) -> None:
    (first, broken, last), _ = gather([good, body, good], deadline_s=0.2)
    assert broken.failure is not None
    assert broken.failure.startswith(failure)
    assert (broken.unscored, broken.score, broken.truth) == (broken.failure, None, None)
    assert len(broken.turns) == turns
    assert [t.failure for t in (first, last)] == [None, None]
    assert [t.truth for t in (first, last)] == [1.0, 1.0]


@pytest.mark.parametrize(("takes", "failure"), [(9.0, None), (11.0, "deadline: no end after 10 s")])
def test_the_time_of_an_attempt_runs_from_when_it_has_a_place(takes: float, failure: str | None) -> None:
    """Whole seconds, at which the runner looks."""

    async def asks(recorder: Recorder, client: Any) -> list[Message]:
        recorder.placed_at = 100.0
        await asyncio.sleep(recorder.placed_at + takes)
        recorder.call(client)
        return [HI, HELLO]

    (one,), _ = gather([asks], deadline_s=10.0)
    assert one.failure == failure


def test_messages_that_are_not_json_are_refused() -> None:
    (broken,), _ = gather([returning([{"role": "user", "content": "x", "when": time}])])
    assert broken.failure is not None
    assert "number 0 is not JSON" in broken.failure


def test_sdk_message_objects_are_taken() -> None:
    from openai.types.chat import ChatCompletionMessage

    (got,), _ = gather([returning([HI, ChatCompletionMessage(role="assistant", content="hello")])])
    assert got.failure is None
    assert got.messages == (HI, HELLO)
    assert got.turns[0].message_index == 1


def test_without_returned_messages_the_record_tells() -> None:
    (got,), _ = gather([silent])
    assert got.messages == (HI, HELLO)
    assert got.failure is None


def test_an_agent_that_swallows_its_cancellation_is_left_behind() -> None:
    released = asyncio.Event()

    async def stubborn(_recorder: Recorder, _client: Any) -> None:
        while not released.is_set():
            try:
                await released.wait()
            except asyncio.CancelledError:
                released.clear()
                await asyncio.sleep(3600)
                return

    (broken, fine), _ = gather([stubborn, good], deadline_s=0.1)
    assert broken.failure == "deadline: no end after 0.1 s"
    assert fine.failure is None


def test_order_is_that_of_attempts_not_of_endings() -> None:
    def after(seconds: float) -> Body:
        async def body(recorder: Recorder, client: Any) -> None:
            await asyncio.sleep(seconds)
            recorder.call(client)

        return body

    got, recorder = gather([after(0.2), after(0.1), after(0.0)])
    assert [t.trajectory_id for t in got] == [f"s/train-0000/{i}" for i in range(3)]
    assert recorder.taken == [f"s/train-0000/{i}" for i in (2, 1, 0)]


def test_sessions_are_opened_at_once_and_in_order() -> None:
    _, recorder = gather([good, raises, good])
    assert recorder.opened == [f"s/train-0000/{i}" for i in range(3)]
    assert sorted(recorder.taken) == recorder.opened


def test_a_broken_truth_check_leaves_the_truth_unknown() -> None:
    def broken(_messages: Sequence[Message]) -> None:
        raise KeyError("status")

    (got,), _ = gather([good], truth=broken)
    assert (got.truth, got.failure) == (None, None)
    assert got.metadata["truth_error"] == "KeyError: 'status'"


def test_the_first_wrong_step_is_attached() -> None:
    (got,), _ = gather([good], truth=lambda _: Label(value=0.0, first_wrong_step=0))
    assert (got.truth, got.first_wrong_step) == (0.0, 0)


def plan_with(recorder: Recorder, attempt: Callable[..., Attempt], **changes: Any) -> RolloutPlan:
    return RolloutPlan(
        **{
            "sessions": recorder,
            "attempt": attempt,
            "part": "p",
            "limits": Limits(attempts=2, deadline_s=5),
            **changes,
        }
    )


def test_a_world_that_cannot_be_made_is_a_failure_too() -> None:
    recorder = Recorder()

    def attempt(scenario: Scenario, _trajectory_id: str) -> Attempt:
        if scenario.scenario_id == "bad":
            raise FileNotFoundError("no database")
        return Attempt(agent=lambda client, _: good(recorder, client))

    groups = virtual_time.run(
        collect([Scenario(scenario_id="bad"), Scenario(scenario_id="ok")], plan_with(recorder, attempt))
    )
    assert [t.failure for t in groups[0].trajectories] == [
        "environment raised: FileNotFoundError: no database"
    ] * 2
    assert [t.failure for t in groups[1].trajectories] == [None, None]
    assert sorted(recorder.taken) == sorted(recorder.opened)


def test_environments_are_closed_whatever_happens() -> None:
    recorder, closed = Recorder(), []
    bodies = [raises, good]

    def attempt(_scenario: Scenario, trajectory_id: str) -> Attempt:
        body = bodies[int(trajectory_id[-1])]
        return Attempt(
            agent=lambda client, _: body(recorder, client), close=lambda: closed.append(trajectory_id)
        )

    virtual_time.run(collect([Scenario(scenario_id="s")], plan_with(recorder, attempt)))
    assert sorted(closed) == ["s/p/0", "s/p/1"]


def test_an_environment_that_cannot_be_closed_spoils_nothing(caplog: pytest.LogCaptureFixture) -> None:
    recorder = Recorder()

    def broken() -> None:
        raise OSError("locked")

    def attempt(_scenario: Scenario, _trajectory_id: str) -> Attempt:
        return Attempt(agent=lambda client, _: good(recorder, client), close=broken)

    groups = virtual_time.run(collect([Scenario(scenario_id="s")], plan_with(recorder, attempt)))
    assert [t.failure for t in groups[0].trajectories] == [None, None]
    assert "s/p/0: its environment could not be closed: OSError: locked" in caplog.text


def test_a_cancelled_rollout_stops_its_agents_and_ends_its_sessions() -> None:
    recorder, stopped, closed = Recorder(), [], []

    async def waits(client: Any, _scenario: Scenario) -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            stopped.append(str(client.base_url))

    def attempt(_scenario: Scenario, trajectory_id: str) -> Attempt:
        return Attempt(agent=waits, close=lambda: closed.append(trajectory_id))

    async def run() -> None:
        task = asyncio.ensure_future(collect([Scenario(scenario_id="s")], plan_with(recorder, attempt)))
        await asyncio.sleep(0.05)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        virtual_time.run(run())
    assert len(stopped) == len(closed) == 2
    assert sorted(recorder.taken) == recorder.opened


def test_ids_that_would_clash_are_refused_before_anything_is_opened() -> None:
    recorder = Recorder()
    twice = [Scenario(scenario_id="s"), Scenario(scenario_id="s")]
    with pytest.raises(InputError, match="a scenario id is there twice"):
        virtual_time.run(
            collect(twice, plan_with(recorder, lambda *_: Attempt(agent=lambda *_: good(recorder, None))))
        )
    assert recorder.opened == []


def test_progress_counts_every_attempt() -> None:
    recorder, seen = Recorder(), []

    def attempt(_scenario: Scenario, _id: str) -> Attempt:
        return Attempt(agent=lambda client, _: good(recorder, client))

    plan = plan_with(recorder, attempt, on_attempt=lambda done, total: seen.append((done, total)))
    groups: list[Group] = virtual_time.run(
        collect([Scenario(scenario_id="a"), Scenario(scenario_id="b")], plan)
    )
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert [g.group_id for g in groups] == ["a/p", "b/p"]


@pytest.mark.parametrize("wrong", [{"attempts": 0}, {"deadline_s": 0.0}, {"temperature": -1.0}])
def test_limits_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(wrong))):
        Limits(**wrong)


def lost_times(times: int) -> tuple[Body, list[int]]:
    """An agent whose second call is lost with the server, in its first `times` attempts."""
    begun: list[int] = []

    async def body(recorder: Recorder, client: Any) -> list[Message]:
        key = str(client.base_url).removeprefix("http://recorder/").removesuffix("/v1/")
        begun.append(len(begun))
        recorder.call(client)
        if len(begun) <= times:
            recorder.losses[key] = "the server ended"
            raise ConnectionError("503")
        return [HI, HELLO]

    return body, begun


def test_an_attempt_lost_with_its_server_is_made_anew_and_never_spliced() -> None:
    body, begun = lost_times(2)
    (mine, other), recorder = gather([body, good])
    assert len(begun) == 3
    assert mine.failure is None
    assert len(mine.turns) == 1
    assert mine.truth == 1.0
    assert other.failure is None
    assert recorder.opened == ["s/train-0000/0", "s/train-0000/1", "s/train-0000/0", "s/train-0000/0"]
    assert sorted(recorder.taken) == sorted(recorder.opened)


def test_a_lost_call_counts_also_where_the_agent_swallowed_the_error() -> None:
    begun: list[int] = []

    async def body(recorder: Recorder, client: Any) -> list[Message]:
        begun.append(0)
        recorder.call(client)
        if len(begun) == 1:
            recorder.losses["s/train-0000/0"] = "the server ended"
        return [HI, HELLO]

    (mine,), _ = gather([body])
    assert len(begun) == 2
    assert len(mine.turns) == 1


def test_losses_are_told_and_bounded() -> None:
    body, begun = lost_times(99)
    recorder, told = Recorder(), []

    def attempt(_scenario: Scenario, _trajectory_id: str) -> Attempt:
        return Attempt(agent=lambda client, _: body(recorder, client), truth=lambda _: None)

    plan = plan_with(recorder, attempt, limits=Limits(attempts=1), on_lost=lambda *lost: told.append(lost))
    ((mine,),) = [g.trajectories for g in virtual_time.run(collect([Scenario(scenario_id="s")], plan))]
    assert told == [("s/p/0", "the server ended")] * MOST_LOST
    assert len(begun) == MOST_LOST + 1
    assert mine.failure == f"the server was lost under it {MOST_LOST + 1} times: the server ended"


def test_a_server_that_does_not_come_back_ends_the_rollout() -> None:
    body, _ = lost_times(1)
    recorder = Recorder(gone=True)

    def attempt(_scenario: Scenario, _trajectory_id: str) -> Attempt:
        return Attempt(agent=lambda client, _: body(recorder, client), truth=lambda _: None)

    plan = plan_with(recorder, attempt, limits=Limits(attempts=1))
    with pytest.raises(EngineError, match="lost for good"):
        virtual_time.run(collect([Scenario(scenario_id="s")], plan))
    assert recorder.taken == recorder.opened

"""Overload and outages: waited out, paid once, and never fed."""

import asyncio
import math
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import httpx
import pytest
from scripted_judge import (
    ASKED,
    SETTINGS,
    URL,
    Script,
    Server,
    Time,
    completion,
    dead,
    endpoint,
    good,
    raises,
    status,
)

import virtual_time
from strop.judge.ask import Answer
from strop.judge.backoff import FIRST_CONTACT_S, Backoff
from strop.judge.endpoint import Endpoint
from strop.judge.faults import Fault, stated_wait
from strop.judge.pace import Pace
from strop.judge.verdict import Failure


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (status(429), "429"),
        (status(408), "408"),
        (status(409), "409"),
        (status(500), "500"),
        (status(503), "503"),
        (raises(httpx.ReadError), "lost"),
        (raises(httpx.RemoteProtocolError), "lost"),
        (dead, "unreached"),
        (raises(httpx.ConnectTimeout), "unreached"),
    ],
)
def test_what_passes_is_repeated_and_paid_once(script: Script, reason: str) -> None:
    server, time = Server(script, script, good), Time()
    answer = virtual_time.run(endpoint(server, time=time)(ASKED))
    assert (answer.text, answer.retried, answer.cost.calls) == ("0.5", {reason: 2}, 1)
    assert time.reasons == [reason, reason]
    first, second = (seconds for _, seconds in time.waits)
    assert 0.25 <= first <= 0.5
    assert 0.5 <= second <= 1.0
    assert answer.cost.seconds == pytest.approx(first + second)


def test_x50_patience_ends_after_its_seconds() -> None:
    server, time = Server(good, status(503, "overloaded")), Time()
    judge = endpoint(server, time=time)

    async def twice() -> Answer:
        await judge(ASKED)
        return await judge(ASKED)

    answer = virtual_time.run(twice())
    assert answer.failure == Failure.TRANSPORT
    assert "overloaded" in answer.detail
    assert "100 s" in answer.detail
    assert time.seconds - 1000 == pytest.approx(100)
    assert answer.retried == {"503": len(server.requests) - 2}
    assert answer.cost.unmetered == 1


def test_no_patience_means_one_request() -> None:
    server = Server(status(500))
    answer = virtual_time.run(endpoint(server, replace(SETTINGS, patience_s=0))(ASKED))
    assert (answer.failure, answer.retried, len(server.requests)) == (Failure.TRANSPORT, {}, 1)


def test_a_server_nobody_started_is_given_up_soon_and_one_that_answered_is_waited_for() -> None:
    time = Time()
    answer = virtual_time.run(endpoint(Server(dead), time=time)(ASKED))
    assert answer.failure == Failure.TRANSPORT
    assert f"no server answers at {URL}" in answer.detail
    assert time.seconds - 1000 == pytest.approx(FIRST_CONTACT_S)

    time = Time()
    judge = endpoint(Server(good, *[dead] * 6, good), time=time)
    assert virtual_time.run(judge(ASKED)).retried == {}
    assert virtual_time.run(judge(ASKED)).retried == {"unreached": 6}
    assert time.seconds - 1000 > 2 * FIRST_CONTACT_S


def test_once_given_up_a_server_that_is_down_holds_up_nobody_for_long() -> None:
    time = Time()
    server = Server(good, dead)
    judge = endpoint(server, time=time)
    virtual_time.run(judge(ASKED))
    assert virtual_time.run(judge(ASKED)).failure == Failure.TRANSPORT
    assert time.seconds - 1000 == pytest.approx(100)
    assert virtual_time.run(judge(ASKED)).failure == Failure.TRANSPORT
    assert time.seconds - 1000 == pytest.approx(100 + FIRST_CONTACT_S)


def test_the_servers_own_wait_is_kept() -> None:
    time = Time()
    answer = virtual_time.run(
        endpoint(Server(status(429, headers={"retry-after": "17"}), good), time=time)(ASKED)
    )
    assert (answer.retried, time.waits) == ({"429": 1}, [("429", 17.0)])
    time = Time()
    answer = virtual_time.run(
        endpoint(Server(status(429, headers={"retry-after": "9999"})), time=time)(ASKED)
    )
    assert answer.failure == Failure.TRANSPORT
    assert time.waits == [("429", 60.0)]  # a second one would end after the 100 s of patience


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7.5"}, 7.5),
        ({"retry-after": "9999"}, 60.0),
        ({"retry-after": "0"}, None),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "²"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after-ms": "250", "retry-after": "1"}, 0.25),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:30 GMT", "date": "Wed, 21 Oct 2026 07:28:00 GMT"}, 30.0),
        ({"retry-after": "Wed, 21 Oct 2026 07:27:00 GMT", "date": "Wed, 21 Oct 2026 07:28:00 GMT"}, None),
        ({"retry-after": format_datetime(datetime.now(UTC) + timedelta(days=1))}, 60.0),
    ],
)
def test_retry_after_is_read_in_every_form(headers: Mapping[str, str], seconds: float | None) -> None:
    assert stated_wait(headers) == seconds


def test_waits_differ_between_requests_and_repeat_between_runs() -> None:
    again = Fault(action="repeat", reason="503")
    requests = [replace(ASKED, repeat=i) for i in range(20)]
    waits = [Backoff(request).wait(again, 0.0, 100.0) for request in requests]
    assert len(set(waits)) == 20
    assert waits == [Backoff(request).wait(again, 0.0, 100.0) for request in requests]
    backoff = Backoff(ASKED)
    several = [backoff.wait(again, 0.0, 1000.0) or math.nan for _ in range(12)]
    for i, wait in enumerate(several):
        whole = min(30.0, 0.5 * 2**i)
        assert whole / 2 <= wait <= whole


def test_a_stated_wait_of_next_to_nothing_is_no_licence_to_hammer() -> None:
    backoff = Backoff(ASKED)
    tiny = Fault(action="repeat", reason="429", stated_s=0.001)
    waits = [backoff.wait(tiny, 0.0, 1000.0) or 0.0 for _ in range(8)]
    assert waits[0] >= 0.025
    assert waits[-1] >= 1.5


def gathered(judge: Endpoint, count: int) -> list[Answer]:
    async def all_at_once() -> list[Answer]:
        return list(await asyncio.gather(*(judge(replace(ASKED, repeat=i)) for i in range(count))))

    return virtual_time.run(all_at_once())


def test_in_a_storm_all_wait_and_fewer_go_at_once() -> None:
    """Of 16 at once the server takes 3 and asks the others to wait 9 s; nothing is lost or paid twice."""
    time = Time()

    async def crowded(server: Server, _: dict[str, Any]) -> httpx.Response:
        full = server.there > 3
        await asyncio.sleep(1)
        return status(429, headers={"retry-after": "9"})(server, {}) if full else completion()

    server = Server(crowded)
    answers = gathered(endpoint(server, time=time), 16)
    assert [answer.text for answer in answers] == ["0.5"] * 16
    assert server.served == sum(answer.cost.calls for answer in answers) == 16
    refused = len(server.requests) - 16
    assert sum(answer.retried.get("429", 0) for answer in answers) == refused
    assert set(time.reasons) == {"429"}
    assert 13 <= refused < 25  # 31 if they did not come back in smaller numbers


def test_the_gate_holds_all_that_come_until_it_opens() -> None:
    time = Time()

    async def watch() -> list[float]:
        pace = Pace(time.clock(), time.told)
        pace.hold(20, "503")
        pace.hold(5, "429")

        async def go() -> float:
            async with pace.turn():
                return time.seconds

        return await asyncio.gather(go(), go()) + [await go()]

    assert virtual_time.run(watch()) == [1020.0] * 3
    assert time.waits == [("503", 20.0)] * 2


def test_pace_halves_once_an_overload_and_creeps_up() -> None:
    async def watch() -> None:
        pace = Pace(Time().clock(), lambda *_: None)
        async with pace.turn() as a, pace.turn() as b, pace.turn() as c, pace.turn() as d:
            for turn in (a, b, c, d):
                pace.slow_down(turn)
            assert pace.limit == 2.0
        limits = []
        for _ in range(4):
            pace.speed_up()
            limits.append(pace.limit)
        near = 2.9 + 1 / 2.9  # one more would be the 4 that were too many
        assert limits == pytest.approx([2.5, 2.9, near, near + 0.25 / near])
        for _ in range(3):
            async with pace.turn() as a:
                pace.slow_down(a)
        assert pace.limit == 1.0

    virtual_time.run(watch())


def test_a_cancelled_request_passes_its_turn_on() -> None:
    async def watch() -> list[str]:
        pace, went = Pace(Time().clock(), lambda *_: None), []
        pace.limit = 1.0
        leave = asyncio.Event()

        async def go(name: str) -> None:
            async with pace.turn():
                went.append(name)
                await leave.wait()

        tasks = {name: asyncio.create_task(go(name)) for name in "abcd"}
        await asyncio.sleep(0)
        tasks["b"].cancel()  # while it waits
        tasks["a"].cancel()  # while it is there, which hands the turn to c
        await asyncio.sleep(0)
        tasks["c"].cancel()  # once it was handed the turn
        leave.set()
        await asyncio.wait(tasks.values(), timeout=5)
        async with asyncio.timeout(5), pace.turn():
            went.append("e")
        return went

    went = virtual_time.run(watch())
    assert went[0] == "a"
    assert went[-2:] == ["d", "e"]

"""So many sessions ask a vLLM at a time, each until it is shut."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import wraps
from typing import ParamSpec

import pytest

from strop.engines.vllm.places import Places

Given = ParamSpec("Given")


def awaited(test: Callable[Given, Awaitable[None]]) -> Callable[Given, None]:
    @wraps(test)
    def run(*args: Given.args, **kwargs: Given.kwargs) -> None:
        async def whole() -> None:
            await test(*args, **kwargs)

        asyncio.run(whole())

    return run


async def asked(
    places: Places, sessions: Sequence[str | None], seen: list[str | None]
) -> list["asyncio.Task[None]"]:
    async def take(session: str | None) -> None:
        await places.take(session)
        seen.append(session)

    tasks = [asyncio.create_task(take(session)) for session in sessions]
    await settled()
    return tasks


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@awaited
async def test_the_first_to_ask_go_first_and_keep_their_places_until_they_are_shut() -> None:
    places, seen = Places(2), []
    places.open(["a", "b", "c", "d"])
    tasks = await asked(places, ["b", "d", "a", "c"], seen)
    assert seen == ["b", "d"]
    tasks += await asked(places, ["b", "b"], seen)
    assert seen == ["b", "d", "b", "b"]
    places.shut("d")
    await settled()
    assert seen[4:] == ["a"]
    places.shut("b")
    await settled()
    assert seen[5:] == ["c"]
    await asyncio.gather(*tasks)


@awaited
async def test_who_is_of_no_open_session_does_not_wait() -> None:
    places, seen = Places(1), []
    places.open(["a", "b"])
    tasks = await asked(places, ["a", "b", None, "stranger"], seen)
    assert set(seen) == {"a", None, "stranger"}
    places.shut("b")
    await asyncio.gather(*tasks)


@pytest.mark.parametrize("how", ["cancelled", "shut"])
@awaited
async def test_who_gave_up_waiting_takes_no_place(how: str) -> None:
    places, seen = Places(1), []
    places.open(["a", "b", "c"])
    first, second, third = await asked(places, ["a", "b", "c"], seen)
    second.cancel() if how == "cancelled" else places.shut("b")
    await settled()
    places.shut("a")
    await settled()
    assert [name for name in seen if name != "b"] == ["a", "c"]
    assert second.cancelled() is (how == "cancelled")
    await asyncio.gather(first, third)


@awaited
async def test_all_get_their_turn_when_they_are_shut_by_other_threads() -> None:
    places, seen = Places(3), []
    names = [str(number) for number in range(60)]
    places.open(names)
    running = most = 0

    async def attempt(name: str) -> None:
        nonlocal running, most
        await places.take(name)
        seen.append(name)
        running += 1
        most = max(most, running)
        await settled()
        running -= 1
        await asyncio.to_thread(places.shut, name)

    await asyncio.gather(*map(attempt, names))
    assert sorted(seen) == sorted(names)
    assert most == 3


@awaited
async def test_a_session_waits_while_others_have_all_places() -> None:
    places = Places(2)
    places.open(["a", "b", "c"])
    assert not places.waits("c")
    tasks = await asked(places, ["a", "b", "c"], [])
    assert [name for name in "abc" if places.waits(name)] == ["c"]
    assert not places.waits("nobody")
    places.shut("a")
    assert [name for name in "abc" if places.waits(name)] == []
    await asyncio.gather(*tasks)

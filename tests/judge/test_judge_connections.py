"""Over real sockets: a server that dies and comes back, and one loop after another."""

import asyncio
import json
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from scripted_judge import (
    ASKED,
    SETTINGS,
    URL,
    Server,
    completion,
    good,
)

from strop.judge.ask import Answer, Request
from strop.judge.endpoint import Endpoint
from strop.judge.ledger import Ledger
from strop.judge.pace import Clock

T = TypeVar("T")
UNHURRIED = replace(SETTINGS, timeout_s=60)


@dataclass
class Loopback:
    """A small server on this machine, which can be killed and started again on its port."""

    port: int = 0
    served: int = 0
    tokens_in: int = 0
    connections: int = 0
    refuse_next: int = 0
    drop_next: int = 0
    _server: asyncio.Server | None = None
    _open: set[asyncio.StreamWriter] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def kill(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in list(self._open):
            writer.transport.abort()
        await self._server.wait_closed()
        while self._open:
            await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._open.add(writer)
        try:
            while await self._one(reader, writer):
                pass
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self._open.discard(writer)
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.split("content-length:")[1].split("\r\n")[0])
        asked = json.loads(await reader.readexactly(length))
        if self.drop_next:
            self.drop_next -= 1
            writer.transport.abort()
            return False
        if self.refuse_next:
            self.refuse_next -= 1
            writer.write(b"HTTP/1.1 429 Slow\r\nretry-after-ms: 5\r\ncontent-length: 0\r\n\r\n")
            return True
        size = len(asked["messages"][0]["content"])
        self.served += 1
        self.tokens_in += size
        body = completion(usage={"prompt_tokens": size, "completion_tokens": 1}).content
        head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()
        return True


def over_loopback(work: Callable[[Loopback], Coroutine[Any, Any, T]]) -> T:
    async def running() -> T:
        server = Loopback()
        await server.start()
        try:
            return await work(server)
        finally:
            await server.kill()

    return asyncio.run(running())


def test_a_server_that_dies_and_comes_back_loses_nothing() -> None:
    """Refusals, cut connections and a death between; the ledger is what the server says it served."""
    ledger, reasons = Ledger(), []

    async def work(server: Loopback) -> list[Answer]:
        missed = asyncio.Event()

        def told(reason: str, _: float) -> None:
            reasons.append(reason)
            if reasons.count("unreached") == 8:
                missed.set()

        quick = Clock(sleep=lambda seconds: asyncio.sleep(seconds / 50))
        judge = Endpoint(server.url, "k", "m", settings=UNHURRIED, on_wait=told, clock=quick)

        async def one(size: int) -> Answer:
            answer = await judge(Request(messages=[{"role": "user", "content": "x" * size}], max_tokens=9))
            ledger.bill(answer.cost, answer.retried)
            return answer

        answers = [await one(1)]
        await server.kill()
        waiting = [asyncio.create_task(one(size)) for size in range(2, 10)]
        await missed.wait()
        server.refuse_next, server.drop_next = 3, 2
        await server.start()
        answers += await asyncio.gather(*waiting)
        await judge.close()
        assert (ledger.cost.calls, ledger.cost.tokens_in) == (server.served, server.tokens_in)
        return answers

    answers = over_loopback(work)
    assert [answer.text for answer in answers] == ["0.5"] * 9
    assert (ledger.cost.tokens_in, ledger.cost.unmetered) == (sum(range(1, 10)), 0)
    assert (ledger.retried["429"], ledger.retried["lost"]) == (3, 2)
    assert ledger.retried["unreached"] >= 8


def test_one_endpoint_serves_one_loop_after_another() -> None:
    """A server in a thread of its own; nothing is left open when `asyncio.run` ends, closed or not."""
    server, ready, done = Loopback(), threading.Event(), threading.Event()

    async def serve() -> None:
        await server.start()
        ready.set()
        while not done.is_set() or server._open:
            await asyncio.sleep(0.001)
        await server.kill()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert ready.wait(60)
        judge = Endpoint(server.url, "", "m", settings=UNHURRIED)

        async def several() -> list[str]:
            answers = await asyncio.gather(*(judge(ASKED) for _ in range(3)))
            return [answer.text for answer in (*answers, await judge.at(server.url + "/")(ASKED))]

        for _ in range(3):
            assert asyncio.run(several()) == ["0.5"] * 4

        async def closing() -> None:
            await judge.close()
            await several()
            await judge.close()
            await judge.close()
            await several()

        asyncio.run(closing())
    finally:
        done.set()
        thread.join(60)
    assert not thread.is_alive(), "a connection was left open"
    assert server.served == 20


def test_a_client_that_was_given_stays_open() -> None:
    async def work() -> bool:
        client = Server(good).client()
        judge = Endpoint(URL, "k", "m", client=client)
        await judge(ASKED)
        await judge.close()
        return client.is_closed()

    assert not asyncio.run(work())

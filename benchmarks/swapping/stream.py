"""A steady stream of requests through a gateway: each worker asks again as soon as it was answered."""

import asyncio
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import httpx

from strop.engines.opening import EmbeddedEngine
from strop.trajectory.model import Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request: from `began` to `ended` (perf_counter), its status (0: no answer), and the answer.

    `model` is the name that the answer gives; `turn` what the gateway recorded. None of both where it was
    dropped.
    """

    began: float
    ended: float
    status: int
    model: str | None
    turn: Turn | None


class Stream:
    """A context manager: `workers` of them ask from entry to exit, in a thread of their own."""

    def __init__(self, engine: EmbeddedEngine, workers: int, body: dict[str, Any]) -> None:
        self._engine, self._workers, self._body = engine, workers, body
        self._done: list[Asked] = []
        self._more = threading.Condition()
        self._ending = threading.Event()
        self._failed: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name="stream")

    def __enter__(self) -> "Stream":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()
        self._failed.result()

    @property
    def asked(self) -> Sequence[Asked]:
        """All that ended so far."""
        with self._more:
            return tuple(self._done)

    def wait_for(self, more: int) -> Sequence[Asked]:
        """The next `more` requests to end."""
        with self._more:
            start = len(self._done)
            self._more.wait_for(lambda: self._failed.done() or len(self._done) >= start + more)
            return tuple(self._done[start:])

    def _run(self) -> None:
        try:
            asyncio.run(self._all())
            self._failed.set_result(None)
        except BaseException as error:  # noqa: BLE001 - the thread's boundary: whoever waits is told
            self._failed.set_exception(error)
        with self._more:
            self._more.notify_all()

    async def _all(self) -> None:
        headers = {"Authorization": f"Bearer {self._engine.api_key}"}
        async with httpx.AsyncClient(trust_env=False, timeout=None, headers=headers) as client:
            await asyncio.gather(*(self._work(client, worker) for worker in range(self._workers)))

    async def _work(self, client: httpx.AsyncClient, worker: int) -> None:
        number = 0
        while not self._ending.is_set():
            one = await self._once(client, f"swaps-{worker}-{number}")
            number += 1
            with self._more:
                self._done.append(one)
                self._more.notify_all()

    async def _once(self, client: httpx.AsyncClient, key: str) -> Asked:
        """A conversation of one call, in a session of its own, so that it is recorded."""
        gateway = self._engine.gateway
        url = gateway.open([key])[key]
        began = time.perf_counter()
        try:
            answer = await client.post(f"{url}/chat/completions", json=self._body)
            status, model = answer.status_code, answer.json().get("model")
        except httpx.TransportError:
            status, model = 0, None
        ended = time.perf_counter()
        calls = gateway.take(key)
        turn = calls[0].turn if status == httpx.codes.OK and calls else None
        return Asked(began=began, ended=ended, status=status, model=model, turn=turn)

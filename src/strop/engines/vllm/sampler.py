"""The sampler over HTTP: a request for token ids to vLLM's completions endpoint, and what came back."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, NoReturn

import httpx

from strop.engines.vllm.availability import Availability
from strop.engines.vllm.completion import SERVER_ERROR, joined, pairs, request, sampled
from strop.engines.vllm.loop import BackgroundLoop
from strop.engines.vllm.places import Places
from strop.engines.vllm.roster import Roster, Version
from strop.errors import InputError, ServerLost, in_one_line
from strop.inference.sampling import OnToken, Sampled, SamplingParams

CONNECT_S = 10.0
SHOWN = 300


class VllmSampler:
    """Implements `strop.inference.sampling.Sampler`; all methods thread-safe.

    vLLM batches what it is asked as it comes: `slots` sessions ask at a time, and a run does not repeat bit
    for bit as with the local sampler, not even at temperature 0: seeds are handed on, but what shares a batch
    decides the last bits. `forgotten(why)` hears of a served name that the server does not know.
    `max_length`: most tokens of prompt and completion together.
    """

    def __init__(
        self,
        roster: Roster,
        availability: Availability,
        url: Callable[[], str],
        *,
        forgotten: Callable[[str], None],
        eos_ids: frozenset[int],
        max_length: int,
        slots: int,
    ) -> None:
        self._roster, self._availability, self._url = roster, availability, url
        self._forgotten = forgotten
        self._eos_ids, self._max_length = eos_ids, max_length
        self._places = Places(slots)
        self._loop = BackgroundLoop("strop-vllm-requests")
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=64)
        timeout = httpx.Timeout(None, connect=CONNECT_S)
        self._http = httpx.AsyncClient(trust_env=False, timeout=timeout, limits=limits)
        self.answered = 0

    def models(self) -> list[str]:
        """Names that can be asked for: what "policy" means first, then the other models, then aliases."""
        return self._roster.models()

    def open(self, sessions: Sequence[str]) -> None:
        """These take places: see the class."""
        self._places.open(sessions)

    def shut(self, session: str) -> None:
        """The session will ask for nothing more; unknown ids are ignored."""
        self._places.shut(session)

    def waits(self, session: str) -> bool:
        """Whether others must end before the session is answered."""
        return self._places.waits(session)

    async def ready(self) -> None:
        """Return once the server can be asked. Raises EngineError where it never will be."""
        await asyncio.to_thread(self._availability.wait)

    async def sample(
        self,
        prompt_ids: Sequence[int],
        params: SamplingParams,
        *,
        model: str,
        session: str | None = None,
        on_token: OnToken | None = None,
    ) -> Sampled:
        """One completion. Cancelling the await ends the request at the server too; `on_token` is called in
        the event loop of the caller.

        Raises InputError for what cannot be answered, ServerLost where the server is down or was lost before
        it had answered, EngineError for an answer that cannot be right: by another model than the one asked,
        without ids or log-probs.
        """
        _check(prompt_ids, params, self._max_length)
        most = self._max_length - len(prompt_ids)
        await self._places.take(session)

        def body(remote: str) -> dict[str, Any]:
            return request(remote, prompt_ids, params, self._eos_ids, most)

        told = None if on_token is None else _in_loop(on_token)
        version, answer = await self.ask(model, body, told)
        found = sampled(answer, version.remote, version.name, version.version, params.top_logprobs)
        self.answered += 1
        return found

    async def ask(
        self, model: str, body: Callable[[str], dict[str, Any]], told: OnToken | None = None
    ) -> tuple[Version, dict[str, Any]]:
        """The answer to a request of one's own, and the version that was asked; `body` makes it for a name.

        Raises as `sample` does; what the answer means is not looked at.
        """
        version = self._roster.take(model)
        try:
            self._availability.check()
            asked = self._loop.submit(self._ask(version, body(version.remote), told))
            return version, await asyncio.wrap_future(asked)
        finally:
            self._roster.give_back(version)

    def close(self) -> None:
        """Cancel what runs, and close all connections."""
        self._loop.submit(self._http.aclose()).result()
        self._loop.close()

    async def _ask(self, version: Version, body: dict[str, Any], told: OnToken | None) -> dict[str, Any]:
        """The answer as vLLM gives it; `told` makes it a stream, and hears of every token."""
        body = body if told is None else {**body, "stream": True}
        try:
            async with self._http.stream("POST", f"{self._url()}/v1/completions", json=body) as answer:
                if answer.status_code != httpx.codes.OK:
                    await answer.aread()
                    self._refused(version, answer)
                if told is None:
                    found: dict[str, Any] = json.loads(await answer.aread())
                    return found
                return joined([chunk async for chunk in _chunks(answer, told)], version.name)
        except httpx.TransportError as error:
            self._availability.doubt(f"it did not answer: {in_one_line(error)}")
            raise ServerLost(f"vLLM was lost while it answered: {in_one_line(error)}") from error

    def _refused(self, version: Version, answer: httpx.Response) -> NoReturn:
        """Raise what an answer means that is none."""
        said = f"{answer.status_code} {answer.text[:SHOWN]}"
        if answer.status_code >= SERVER_ERROR:
            self._availability.doubt(f"it answered {answer.status_code}")
            raise ServerLost(f"vLLM failed while it answered: {said}")
        if answer.status_code == httpx.codes.NOT_FOUND:
            why = f"it no longer knows {version.remote}, which it was given"
            self._availability.down(why)
            self._forgotten(why)
            raise ServerLost(f"vLLM failed while it answered: {why}")
        raise InputError(f"vLLM refused the request: {said}")


async def _chunks(answer: httpx.Response, told: OnToken) -> AsyncIterator[dict[str, Any]]:
    async for line in answer.aiter_lines():
        data = line.removeprefix("data: ")
        if line.startswith("data: ") and data != "[DONE]":
            chunk: dict[str, Any] = json.loads(data)
            for token, logprob in pairs(chunk):
                told(token, logprob)
            yield chunk


def _in_loop(on_token: OnToken) -> OnToken:
    """`on_token`, to be called from another thread."""
    loop = asyncio.get_running_loop()

    def told(token: int, logprob: float) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(on_token, token, logprob)

    return told


def _check(prompt: Sequence[int], params: SamplingParams, max_length: int) -> None:
    """Refuse a request that cannot be answered. Raises InputError."""
    if not 0 < len(prompt) < max_length:
        raise InputError(f"a prompt of {len(prompt)} tokens: 1 to {max_length - 1} are possible")
    if params.max_tokens < 1:
        raise InputError(f"max_tokens is {params.max_tokens}: at least 1")

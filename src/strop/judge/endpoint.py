"""A judge behind an OpenAI-compatible endpoint: a request in, an answer or the class of its failure out."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from strop.errors import ConfigError, Unreachable, in_one_line
from strop.judge.ask import Answer, Ask, Request
from strop.judge.backoff import Backoff, patience
from strop.judge.completion import read_completion, unmetered
from strop.judge.connections import Connections
from strop.judge.dialect import Dialect
from strop.judge.faults import LOST, UNREACHED, Fault, read_error
from strop.judge.pace import Clock, OnWait, Pace
from strop.judge.prices import Price
from strop.judge.verdict import Failure

if TYPE_CHECKING:
    import openai

CONNECT_S = 10.0
ADAPTED = "adapted"
_OURS = (
    "model", "messages", "max_tokens", "max_completion_tokens", "temperature", "seed", "logprobs",
    "top_logprobs", "stream", "n",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointSettings:
    """How an endpoint is asked. Raises ConfigError, naming the key, for a wrong value.

    `temperature` and `seed` are sent unless None. `timeout_s` bounds one HTTP call; `patience_s` is how
    long a request goes on being repeated after 429, 408, 409, 5xx and lost connections, in seconds from
    the first of them. `price` None: unknown. `request` holds further fields of every request.
    """

    temperature: float | None = 0.0
    seed: int | None = 0
    timeout_s: float = 120.0
    patience_s: float = 300.0
    price: Price | None = None
    request: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not (math.isfinite(self.timeout_s) and self.timeout_s > 0):
            raise ConfigError(f"judge.timeout_s is {self.timeout_s}; it must be a positive number of seconds")
        if not (math.isfinite(self.patience_s) and self.patience_s >= 0):
            raise ConfigError(f"judge.patience_s is {self.patience_s}; it must be a number of seconds")
        if self.temperature is not None and not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise ConfigError(f"judge.temperature is {self.temperature}; it must be a number, at least 0")
        for name in _OURS:
            if name in self.request:
                raise ConfigError(f"judge.request has the field {name!r}, which the judge itself sets")


_DEFAULTS = EndpointSettings()


class Endpoint:
    """An `Ask` over the OpenAI protocol: `await endpoint(request)`.

    Overload, server errors and lost connections are waited out; a server that never answered is given
    up after some seconds. When the server asks to wait, all requests do, and fewer go at once for a
    while. A call that ran out of time is not repeated, since it may have to be paid for. Fields that
    the server turns out not to take are left out from then on. It can be used from one event loop
    after another. `client` takes the place of one made from the address and key; it stays open.
    `on_wait` is told the reason and the seconds of each wait. Asking raises Unreachable for a refused
    key, an unknown model and an account without money; everything else is an Answer.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str,
        model: str,
        *,
        settings: EndpointSettings = _DEFAULTS,
        client: openai.AsyncOpenAI | None = None,
        on_wait: OnWait | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.base_url = base_url
        self.model = model
        self.settings = settings
        self._api_key = api_key
        self._client = client
        self._clock = clock or Clock()
        self._on_wait = on_wait or _nobody
        self._dialect = Dialect()
        self._answered = False
        self._connections = Connections(self._open_client, self._start_pace, borrowed=client is not None)

    @property
    def name(self) -> str:
        """Who answers and how it is sampled, for people."""
        sampling = {"temperature": self.settings.temperature, "seed": self.settings.seed}
        said = [f"{key} {value:g}" for key, value in sampling.items() if value is not None]
        further = [f"{key} {value}" for key, value in self.settings.request.items()]
        return ", ".join([f"{self.model} at {self.base_url}", *said, *further])

    @property
    def identity(self) -> tuple[str, ...]:
        """What answers depend on, apart from the request: part of the key of kept replies."""
        settings = self.settings
        further = json.dumps(settings.request, sort_keys=True, default=str)
        return (self.base_url, self.model, str(settings.temperature), str(settings.seed), further)

    async def __call__(self, request: Request) -> Answer:
        """Ask, and repeat as the settings say. The cost is that of the one call that was answered."""
        return await self._ask(request, self.base_url)

    def at(self, url: str) -> Ask:
        """The same endpoint, clients, pace and identity, reached at another base URL."""
        return _Elsewhere(self, url)

    async def close(self) -> None:
        """Close the running loop's connections. Calling it again does nothing; asking opens them again."""
        await self._connections.close()

    async def _ask(self, request: Request, url: str) -> Answer:
        begun, backoff = self._clock.now(), Backoff(request)
        while True:
            line = await self._connections.line()
            async with line.pace.turn() as turn:
                came = await self._call(line.client, request, url)
                self._take_note(came, line.pace, turn)
            if isinstance(came, Answer):
                seconds = self._clock.now() - begun
                return replace(came, retried=dict(backoff.retried), cost=replace(came.cost, seconds=seconds))
            if not await self._again(came, backoff, line.pace):
                return self._failed(came, backoff, begun, url)

    async def _call(self, client: openai.AsyncOpenAI, request: Request, url: str) -> Answer | Fault:
        """One HTTP exchange, within the timeout."""
        import openai

        fields = self._dialect.say(self._fields(request))
        body = {"model": self.model, "messages": list(request.messages), **fields}
        there = client if url == self.base_url else client.with_options(base_url=url)
        try:
            async with asyncio.timeout(self.settings.timeout_s):
                # Not through the SDK's types: they know no field that is a server's own, read true as 1
                # token, and take as long for a prompt as all else here.
                completion = await there.post("/chat/completions", body=body, cast_to=object)
        except TimeoutError:
            return Fault(action="fail", failure=Failure.TIMEOUT)
        except openai.APIError as error:
            return read_error(error, fields)
        except (ValueError, RecursionError) as error:
            return Fault(action="fail", detail=f"the request or its answer is not JSON: {in_one_line(error)}")
        return read_completion(completion, self.settings.price, 0.0, top_logprobs=request.top_logprobs)

    def _fields(self, request: Request) -> dict[str, Any]:
        settings = self.settings
        fields: dict[str, Any] = {"max_tokens": request.max_tokens, **settings.request}
        if settings.temperature is not None:
            fields["temperature"] = settings.temperature
        if settings.seed is not None:
            fields["seed"] = settings.seed
        if request.top_logprobs:
            fields |= {"logprobs": True, "top_logprobs": request.top_logprobs}
        return fields

    def _take_note(self, came: Answer | Fault, pace: Pace, turn: int) -> None:
        """What one exchange says of the server."""
        if isinstance(came, Answer):
            self._answered = True
            pace.speed_up()
            return
        silent = came.reason in (LOST, UNREACHED) or came.failure is Failure.TIMEOUT
        self._answered = self._answered or not silent
        if came.reason == "429" or came.stated_s is not None:
            pace.slow_down(turn)

    async def _again(self, fault: Fault, backoff: Backoff, pace: Pace) -> bool:
        """Whether the request is to be repeated; returns when it may be."""
        if fault.action == "adapt":
            self._dialect.learn(fault.reason)
            backoff.retried[ADAPTED] += 1
            return True
        if fault.action != "repeat":
            return False
        bound = patience(fault, self.settings.patience_s, answered=self._answered)
        wait = backoff.wait(fault, self._clock.now(), bound)
        if wait is None:
            return False
        if fault.stated_s is not None:
            pace.hold(wait, fault.reason)
            return True
        self._on_wait(fault.reason, wait)
        await self._clock.sleep(wait)
        return True

    def _failed(self, fault: Fault, backoff: Backoff, begun: float, url: str) -> Answer:
        if fault.action == "stop":
            raise Unreachable(f"judge {self.model!r} at {url}: {fault.detail}")
        now = self._clock.now()
        detail = fault.detail
        if fault.failure is Failure.TIMEOUT:
            detail = f"no answer within {self.settings.timeout_s:g} s"
        elif fault.reason == UNREACHED:
            detail = f"no server answers at {url}, tried for {backoff.waited(now):.0f} s: {fault.detail}"
        elif fault.action == "repeat":
            detail = f"given up after {backoff.waited(now):.0f} s: {fault.detail}"
        if fault.reason in (UNREACHED, LOST):
            # It is down: those that come next are not to wait as long again, each in its turn.
            self._answered = False
        cost = unmetered(self.settings.price, now - begun)
        return Answer(failure=fault.failure, detail=detail, retried=dict(backoff.retried), cost=cost)

    def _open_client(self) -> openai.AsyncOpenAI:
        import openai

        if self._client is not None:
            return self._client.with_options(base_url=self.base_url, max_retries=0)
        timeout = openai.Timeout(self.settings.timeout_s, connect=min(CONNECT_S, self.settings.timeout_s))
        return openai.AsyncOpenAI(
            base_url=self.base_url,
            api_key=self._api_key or "none",
            timeout=timeout,
            max_retries=0,
            # The SDK's own would be closed when collected, in whatever loop runs then.
            http_client=openai.DefaultAsyncHttpxClient(timeout=timeout),
        )

    def _start_pace(self, before: Pace | None) -> Pace:
        return Pace(self._clock, self._on_wait, before)


@dataclass(frozen=True, slots=True)
class _Elsewhere:
    """An endpoint at another address: it says the same, so it has the same name and identity."""

    endpoint: Endpoint
    url: str

    @property
    def name(self) -> str:
        return self.endpoint.name

    @property
    def identity(self) -> tuple[str, ...]:
        return self.endpoint.identity

    async def __call__(self, request: Request) -> Answer:
        return await self.endpoint._ask(request, self.url)


def _nobody(_: str, __: float) -> None:
    """Is told of waits that nobody asked about."""

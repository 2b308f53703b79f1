"""A server in process that says what a test wants of it, a time that passes at once, and one call."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import httpx
import openai

import virtual_time
from strop.judge.ask import Answer, Request
from strop.judge.endpoint import Endpoint, EndpointSettings
from strop.judge.pace import Clock
from strop.judge.prices import Price

Script = Callable[["Server", dict[str, Any]], Any]
URL = "http://judge.test/v1"
PRICE = Price(2.0, 10.0, cached_input=0.5)
SETTINGS = EndpointSettings(timeout_s=5, patience_s=100, price=PRICE)
ASKED = Request(messages=[{"role": "user", "content": "judge this"}], max_tokens=64)
USAGE = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
DIGIT = replace(ASKED, top_logprobs=3)


class Client(openai.AsyncOpenAI):
    """Asks no worker thread what platform this is, as the SDK's does once: no test knows when that ends."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._platform = "Linux"


class Server:
    """Speaks the OpenAI protocol in process; each call takes the next script, the last one for ever."""

    def __init__(self, *scripts: Script) -> None:
        self.scripts = scripts
        self.requests: list[dict[str, Any]] = []
        self.urls: list[str] = []
        self.keys: set[str] = set()
        self.served = 0
        self.there = 0

    async def handle(self, request: httpx.Request) -> httpx.Response:
        self.urls.append(str(request.url))
        self.keys.add(request.headers["authorization"])
        self.requests.append(json.loads(request.content))
        self.there += 1
        try:
            script = self.scripts[min(len(self.requests), len(self.scripts)) - 1]
            answer = script(self, self.requests[-1])
            answer = await answer if isinstance(answer, Awaitable) else answer
        finally:
            self.there -= 1
        self.served += answer.status_code == 200
        return answer

    def client(self) -> openai.AsyncOpenAI:
        transport = httpx.AsyncClient(transport=httpx.MockTransport(self.handle))
        return Client(base_url="http://elsewhere.test", api_key="k", http_client=transport)


@dataclass
class Time:
    """Passes only while somebody sleeps."""

    seconds: float = 1000.0
    waits: list[tuple[str, float]] = field(default_factory=list)

    async def sleep(self, seconds: float) -> None:
        until = self.seconds + seconds
        await asyncio.sleep(0)
        self.seconds = max(self.seconds, until)

    def clock(self) -> Clock:
        return Clock(now=lambda: self.seconds, sleep=self.sleep)

    def told(self, reason: str, seconds: float) -> None:
        self.waits.append((reason, seconds))

    @property
    def reasons(self) -> list[str]:
        return [reason for reason, _ in self.waits]


def completion(
    content: Any = "0.5", finish: Any = "stop", usage: Any = USAGE, **choice: Any
) -> httpx.Response:
    message = {"role": "assistant", "content": content, **choice.pop("message", {})}
    body: dict[str, Any] = {"id": "c", "object": "chat.completion", "created": 0, "model": "m"}
    body["choices"] = [{"index": 0, "finish_reason": finish, "message": message, **choice}]
    return httpx.Response(200, json=body if usage is None else body | {"usage": usage})


def good(_: Server, __: dict[str, Any]) -> httpx.Response:
    return completion()


def says(*args: Any, **kwargs: Any) -> Script:
    return lambda _, __: completion(*args, **kwargs)


def status(number: int, text: str = "no", headers: Mapping[str, str] | None = None, **error: Any) -> Script:
    return lambda _, __: httpx.Response(number, json={"error": {"message": text, **error}}, headers=headers)


def raises(error: type[httpx.TransportError]) -> Script:
    def script(_: Server, __: dict[str, Any]) -> httpx.Response:
        raise error("it went wrong")

    return script


def hangs(_: Server, __: dict[str, Any]) -> Any:
    return asyncio.Event().wait()


dead = raises(httpx.ConnectError)


def endpoint(server: Server, settings: EndpointSettings = SETTINGS, time: Time | None = None) -> Endpoint:
    time = time or Time()
    return Endpoint(
        URL, "k", "m", settings=settings, client=server.client(), on_wait=time.told, clock=time.clock()
    )


def ask(*scripts: Script, settings: EndpointSettings = SETTINGS, request: Request = ASKED) -> Answer:
    return virtual_time.run(endpoint(Server(*scripts), settings)(request))

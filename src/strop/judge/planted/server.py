"""A planted judge behind the OpenAI chat-completions protocol on loopback, with faults on command.

    with PlantedServer(Planted(noise=0.2)) as server:
        client = openai.OpenAI(base_url=server.base_url, api_key="any")
        server.faults = Faults(refuse_next=20, retry_after_s=0.1)
        server.stop(); server.start()

What it served is counted, so that a client's own account can be held against it.
"""

import asyncio
import json
import math
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from strop.errors import InputError
from strop.judge.planted.behaviour import Planted, Reply
from strop.judge.planted.loopback import Call, Loopback, Response
from strop.judge.planted.usage import CountTokens, PromptCache, cut_to, estimate_tokens, prompt_tokens
from strop.seeds import generator


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """What a server does wrong until it is told otherwise. The default is nothing.

    `latency_s` is the time every answer takes. The next `refuse_next` requests get 429, and so does
    a request that comes while `most_at_once` are in flight; both with Retry-After where
    `retry_after_s` is given. The next `fail_next` requests get `fail_status`, others with probability
    `fail_rate` (drawn by number of arrival). The next `hang_next` get no answer until `release`; to
    the next `cut_next` the connection is closed in the middle of the answer. A number of requests may
    be `math.inf`. Raises InputError for a negative value.
    """

    latency_s: float = 0.0
    refuse_next: float = 0
    retry_after_s: float | None = None
    most_at_once: float = math.inf
    fail_next: float = 0
    fail_rate: float = 0.0
    fail_status: int = 503
    hang_next: float = 0
    cut_next: float = 0

    def __post_init__(self) -> None:
        for name in ("latency_s", "refuse_next", "fail_next", "fail_rate", "hang_next", "cut_next"):
            if not getattr(self, name) >= 0:
                raise InputError(f"planted fault {name} is {getattr(self, name)}; it must be 0 or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """What the server offers: None for `model`, `api_key` and `context_tokens` accepts any.

    A prompt of more than `context_tokens` gets 400, another key 401, another model 404. `usage`
    False leaves out the token counts. `prompt_cache` reports cached tokens for beginnings of prompts
    seen before. `kept` bounds the exchanges that are kept for inspection.
    """

    model: str | None = None
    api_key: str | None = None
    context_tokens: int | None = None
    count_tokens: CountTokens = estimate_tokens
    usage: bool = True
    prompt_cache: bool = False
    kept: int = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """The requests answered 200 in full, and their tokens."""

    requests: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """A request's body, the status it got (0: the client left before), and the judge's reply, if any."""

    body: Mapping[str, Any]
    status: int
    reply: Reply | None = None


class PlantedServer:
    """Serves `judge` at `base_url` while it is open; a context manager, closed at the end.

    `judge` may be replaced while it runs. Replies cut at `max_tokens` end with finish_reason "length".
    """

    def __init__(
        self, judge: Planted | None = None, faults: Faults | None = None, service: Service | None = None
    ) -> None:
        self.judge = judge or Planted()
        self._service = service or Service()
        self._faults = faults or Faults()
        self._then: tuple[int, Faults] | None = None
        self._served = Served()
        self._refused: Counter[int] = Counter()
        self._exchanges: deque[Exchange] = deque(maxlen=self._service.kept)
        self._arrived = self._in_flight = self._most = self._left = self._cut = 0
        self._cache = PromptCache()
        self._released = asyncio.Event()
        self._loopback = Loopback(self._handle)
        self.base_url = f"http://127.0.0.1:{self._loopback.port}/v1"
        self._loopback.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Break what is open and end the thread. Again: nothing."""
        self._loopback.close()

    def stop(self) -> None:
        """Die: every connection is broken, new ones are refused. The counts and the port stay."""
        self._loopback.stop()

    def start(self) -> None:
        """Come back on the same port after `stop`."""
        self._loopback.start()

    def release(self) -> None:
        """Answer every request that hangs, and let no further one hang."""
        self._loopback.do(self._release())

    @property
    def faults(self) -> Faults:
        """The faults in force, with what is left of their counts; set it to replace them all."""
        return self._faults

    @faults.setter
    def faults(self, faults: Faults) -> None:
        self._loopback.do(self._set(faults))

    def change_after(self, requests: int, faults: Faults) -> None:
        """Have these faults from so many requests on, exactly; until then those in force."""
        self._loopback.do(self._set(self._faults, (requests, faults)))

    @property
    def served(self) -> Served:
        """The requests answered 200 in full so far, and their tokens."""
        return self._served

    @property
    def refused(self) -> dict[int, int]:
        """How many requests got each other status."""
        return dict(self._refused)

    @property
    def abandoned(self) -> int:
        """How many requests ended without an answer: the client left, or the server died first."""
        return self._left

    @property
    def cut(self) -> int:
        """How many answers were broken off half-way."""
        return self._cut

    @property
    def most_in_flight(self) -> int:
        """The most requests that were in flight at the same time, refused ones not counted."""
        return self._most

    @property
    def exchanges(self) -> list[Exchange]:
        """The last requests with what became of them, in order of their end."""
        return list(self._exchanges)

    @property
    def requests(self) -> list[Mapping[str, Any]]:
        """The last requests' bodies, in order of their end."""
        return [exchange.body for exchange in list(self._exchanges)]

    async def _set(self, faults: Faults, then: tuple[int, Faults] | None = None) -> None:
        self._faults, self._then = faults, then

    def _count(self) -> None:
        """One more request has come."""
        self._arrived += 1
        if self._then is not None:
            left, faults = self._then
            self._faults, self._then = (self._faults, (left - 1, faults)) if left else (faults, None)

    async def _release(self) -> None:
        self._faults = replace(self._faults, hang_next=0)
        self._released.set()
        self._released = asyncio.Event()

    async def _handle(self, call: Call) -> Response:
        if call.method == "GET" and call.path.endswith("/models"):
            listed = [{"id": self._service.model or "planted", "object": "model", "created": 0}]
            return _response(200, {"object": "list", "data": listed})
        if call.method != "POST" or not call.path.endswith("/chat/completions"):
            return self._refuse({}, 404, "there is nothing at this address", "not_found")
        try:
            body = json.loads(call.body)
        except ValueError:
            body = None
        if not isinstance(body, dict):
            return self._refuse({}, 400, "the body is not a JSON object", "bad_request")
        return self._unwanted(call, body) or self._faulty(body) or await self._in_turn(body)

    def _unwanted(self, call: Call, body: Mapping[str, Any]) -> Response | None:
        """A refusal that a request has earned by itself."""
        service = self._service
        if service.api_key is not None and call.headers.get("authorization") != f"Bearer {service.api_key}":
            return self._refuse(body, 401, "the key is not accepted", "invalid_api_key")
        if service.model is not None and body.get("model") != service.model:
            return self._refuse(body, 404, f"there is no model {body.get('model')!r}", "model_not_found")
        if body.get("stream"):
            return self._refuse(body, 400, "a planted judge does not stream", "bad_request")
        if service.context_tokens is not None:
            size = prompt_tokens(body.get("messages") or (), service.count_tokens)
            if size > service.context_tokens:
                said = f"maximum context length is {service.context_tokens} tokens; the messages have {size}"
                return self._refuse(body, 400, said, "context_length_exceeded")
        return None

    def _faulty(self, body: Mapping[str, Any]) -> Response | None:
        """A refusal that the faults in force demand."""
        self._count()
        faults = self._faults
        if faults.refuse_next > 0 or self._in_flight >= faults.most_at_once:
            if faults.refuse_next > 0:
                self._faults = replace(faults, refuse_next=faults.refuse_next - 1)
            after = {} if faults.retry_after_s is None else {"retry-after": f"{faults.retry_after_s:g}"}
            return self._refuse(body, 429, "too many requests", "rate_limit_exceeded", after)
        if faults.fail_next > 0:
            self._faults = replace(faults, fail_next=faults.fail_next - 1)
            return self._refuse(body, faults.fail_status, "planted failure", "server_error")
        if faults.fail_rate > 0:
            draw = generator(self.judge.seed, "planted fault", self._arrived).random()
            if draw < faults.fail_rate:
                return self._refuse(body, faults.fail_status, "planted failure", "server_error")
        return None

    async def _in_turn(self, body: Mapping[str, Any]) -> Response:
        self._in_flight += 1
        self._most = max(self._most, self._in_flight)
        try:
            await self._wait()
            return self._answer(body)
        except asyncio.CancelledError:
            self._left += 1
            self._exchanges.append(Exchange(body=body, status=0))
            raise
        finally:
            self._in_flight -= 1

    async def _wait(self) -> None:
        if self._faults.hang_next > 0:
            self._faults = replace(self._faults, hang_next=self._faults.hang_next - 1)
            await self._released.wait()
        if self._faults.latency_s > 0:
            await asyncio.sleep(self._faults.latency_s)

    def _answer(self, body: Mapping[str, Any]) -> Response:
        try:
            reply = self.judge.reply(body)
        except Exception as error:  # noqa: BLE001 - a caller's own `quality` may raise anything
            return self._refuse(body, 500, f"the planted judge raised {error!r}", "server_error")
        if reply is None:
            return self._refuse(body, 400, "the messages show no attempt to judge", "bad_request")
        reply = self._within(reply, body)
        used = self._used(body, reply)
        broken = self._faults.cut_next > 0
        if broken:
            self._faults = replace(self._faults, cut_next=self._faults.cut_next - 1)
            self._cut += 1
        else:
            self._serve(used)
        self._exchanges.append(Exchange(body=body, status=200, reply=reply))
        said = _completion(body, reply, used if self._service.usage else None, self.judge.logprobs)
        return _response(200, said, broken=broken)

    def _within(self, reply: Reply, body: Mapping[str, Any]) -> Reply:
        most = body.get("max_completion_tokens") or body.get("max_tokens")
        text, cut = cut_to(reply.text, most, self._service.count_tokens)
        return replace(reply, text=text, finish_reason="length") if cut else reply

    def _used(self, body: Mapping[str, Any], reply: Reply) -> Served:
        count, messages = self._service.count_tokens, body["messages"]
        return Served(
            requests=1,
            prompt_tokens=prompt_tokens(messages, count),
            cached_tokens=self._cache.tokens(messages, count) if self._service.prompt_cache else 0,
            completion_tokens=count(reply.text),
        )

    def _serve(self, used: Served) -> None:
        before = self._served
        self._served = Served(
            requests=before.requests + used.requests,
            prompt_tokens=before.prompt_tokens + used.prompt_tokens,
            cached_tokens=before.cached_tokens + used.cached_tokens,
            completion_tokens=before.completion_tokens + used.completion_tokens,
        )

    def _refuse(
        self,
        body: Mapping[str, Any],
        status: int,
        message: str,
        code: str,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        self._refused[status] += 1
        self._exchanges.append(Exchange(body=body, status=status))
        error = {"message": message, "type": code, "param": None, "code": code}
        return replace(_response(status, {"error": error}), headers=headers or {})


def _response(status: int, said: Mapping[str, Any], broken: bool = False) -> Response:
    return Response(status=status, body=json.dumps(said).encode(), broken=broken)


def _completion(body: Mapping[str, Any], reply: Reply, used: Served | None, logprobs: bool) -> dict[str, Any]:
    choice = {
        "index": 0,
        "finish_reason": reply.finish_reason,
        "message": {"role": "assistant", "content": reply.text, "refusal": None},
        "logprobs": _logprobs(reply, body) if logprobs and body.get("logprobs") else None,
    }
    return {
        "id": "chatcmpl-planted",
        "object": "chat.completion",
        "created": 0,
        "model": str(body.get("model") or "planted"),
        "choices": [choice],
        "usage": None if used is None else _usage(used),
    }


def _usage(used: Served) -> dict[str, Any]:
    return {
        "prompt_tokens": used.prompt_tokens,
        "completion_tokens": used.completion_tokens,
        "total_tokens": used.prompt_tokens + used.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": used.cached_tokens},
    }


def _logprobs(reply: Reply, body: Mapping[str, Any]) -> dict[str, Any] | None:
    """The protocol's form of a digit's distribution; None for a reply of another kind."""
    if not reply.alternatives:
        return None
    wanted = int(body.get("top_logprobs") or 0)
    content, at = [], 0
    for place in reply.alternatives:
        said = next((token for token, _ in place if reply.text.startswith(token, at)), place[0][0])
        at += len(said)
        listed = [_token(token, logprob) for token, logprob in place]
        own = next(item for item in listed if item["token"] == said)
        content.append({**own, "top_logprobs": listed[:wanted]})
    return {"content": content, "refusal": None}


def _token(token: str, logprob: float) -> dict[str, Any]:
    return {"token": token, "logprob": logprob, "bytes": list(token.encode("utf-8", "replace"))}

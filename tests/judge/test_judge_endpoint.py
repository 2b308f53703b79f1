"""One call to a judge against scripted servers: dead, slow, refusing, talking rubbish, then good."""

import asyncio
import json
import math
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any, TypeVar

import httpx
import openai
import pytest

from strop.errors import ConfigError, InputError, Unreachable
from strop.judge.ask import Answer, Request
from strop.judge.backoff import FIRST_CONTACT_S, Backoff
from strop.judge.endpoint import Endpoint, EndpointSettings
from strop.judge.faults import Fault, stated_wait
from strop.judge.ledger import Ledger
from strop.judge.pace import Clock, Pace
from strop.judge.prices import Price
from strop.judge.verdict import Failure

T = TypeVar("T")
Script = Callable[["Server", dict[str, Any]], Any]
URL = "http://judge.test/v1"
PRICE = Price(2.0, 10.0, cached_input=0.5)
SETTINGS = EndpointSettings(timeout_s=5, patience_s=100, price=PRICE)
ASKED = Request(messages=[{"role": "user", "content": "judge this"}], max_tokens=64)
USAGE = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
DIGIT = replace(ASKED, top_logprobs=3)


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
        return openai.AsyncOpenAI(base_url="http://elsewhere.test", api_key="k", http_client=transport)


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
    return asyncio.run(endpoint(Server(*scripts), settings)(request))


def test_the_package_is_light_to_import() -> None:
    code = "import sys, strop.judge.endpoint; print(sorted({'openai', 'scipy'} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_an_answer_with_its_cost() -> None:
    answer = ask(says("well", "length", usage={**USAGE, "prompt_tokens_details": {"cached_tokens": 40}}))
    assert (answer.text, answer.finish_reason, answer.failure) == ("well", "length", None)
    cost = answer.cost
    assert (cost.tokens_in, cost.tokens_cached, cost.tokens_out) == (100, 40, 20)
    assert (cost.calls, cost.unmetered, answer.retried) == (1, 0, {})
    assert cost.money == pytest.approx((60 * 2.0 + 40 * 0.5 + 20 * 10.0) / 1e6)


def test_the_request_carries_the_settings() -> None:
    server = Server(good)
    settings = replace(SETTINGS, temperature=0.25, seed=7, request={"reasoning_effort": "low", "own": [1]})
    judge = endpoint(server, settings)

    async def both() -> None:
        await judge(ASKED)
        await judge.at("http://judge.test/session/1/v1")(DIGIT)

    asyncio.run(both())
    assert server.urls == [
        "http://judge.test/v1/chat/completions",
        "http://judge.test/session/1/v1/chat/completions",
    ]
    assert server.requests[0] == {
        "model": "m", "messages": [{"role": "user", "content": "judge this"}], "max_tokens": 64,
        "temperature": 0.25, "seed": 7, "reasoning_effort": "low", "own": [1],
    }  # fmt: skip
    assert server.requests[1] == server.requests[0] | {"logprobs": True, "top_logprobs": 3}
    assert server.keys == {"Bearer k"}


def test_what_is_none_is_not_sent() -> None:
    server = Server(good)
    asyncio.run(endpoint(server, replace(SETTINGS, temperature=None, seed=None))(ASKED))
    assert set(server.requests[0]) == {"model", "messages", "max_tokens"}


@pytest.mark.parametrize(
    ("script", "failure", "words"),
    [
        (status(400, "maximum context length is 2048 tokens"), "too_long", "2048"),
        (status(400, "prompt is too long: 9 > 8"), "too_long", "9 > 8"),
        (status(413), "too_long", "413"),
        (status(500, "the request exceeds the available context size"), "too_long", "context size"),
        (status(429, "Request too large for m on tokens per min"), "too_long", "too large"),
        (status(422, "bad field"), "transport", "bad field"),
        (status(400, "filtered", code="content_filter"), "refusal", "filtered"),
        (says(None, message={"refusal": "I will not."}), "refusal", "declined"),
        (says(None, message={"refusal": None}), None, ""),
        (lambda _, __: httpx.Response(200, text="<html>proxy</html>"), "transport", "not a chat completion"),
        (lambda _, __: httpx.Response(200, json={"hello": 1}), "transport", "not a chat completion"),
        (lambda _, __: httpx.Response(200, json=[1]), "transport", "not a chat completion"),
        (lambda _, __: httpx.Response(200, json={"choices": {"0": 1}}), "transport", "not a chat completion"),
        (lambda _, __: httpx.Response(200, json={"choices": [None]}), "transport", "not a chat completion"),
        (
            lambda _, __: httpx.Response(200, content=b"{", headers={"content-type": "application/json"}),
            "transport",
            "JSON",
        ),
    ],
)
def test_what_cannot_be_used_has_a_class_and_is_not_repeated(
    script: Script, failure: str | None, words: str
) -> None:
    server = Server(script)
    answer = asyncio.run(endpoint(server)(ASKED))
    assert (answer.failure, answer.text, len(server.requests)) == (failure, "", 1)
    assert words in answer.detail
    assert "\n" not in answer.detail
    assert answer.cost.calls == 1
    assert answer.cost.money is not None


def test_a_refused_request_that_was_billed_is_billed() -> None:
    answer = ask(lambda _, __: httpx.Response(200, json={"usage": USAGE}))
    assert (answer.failure, answer.cost.tokens_in, answer.cost.unmetered) == (Failure.TRANSPORT, 100, 0)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("a \ud800 b", "a \ufffd b"),
        (["x"], ""),
        (7, ""),
        ([{"type": "thinking", "text": "hm"}, *({"type": "text", "text": part} for part in "0.5")], "0.5"),
    ],
)
def test_content_of_any_kind_is_valid_text(content: Any, text: str) -> None:
    body = json.dumps({"choices": [{"message": {"content": content}, "finish_reason": 3}], "usage": USAGE})
    answer = ask(lambda _, __: httpx.Response(200, text=body, headers={"content-type": "application/json"}))
    assert (answer.text, answer.finish_reason, answer.failure) == (text, None, None)


@pytest.mark.parametrize(
    "usage",
    [
        None,
        [],
        "many",
        {"prompt_tokens": 100},
        {**USAGE, "prompt_tokens": True},
        {"prompt_tokens": -1, "completion_tokens": 20},
        {"prompt_tokens": 100, "completion_tokens": 10**12},
        {"prompt_tokens": 100, "completion_tokens": 20.5},
        {**USAGE, "prompt_tokens": "100"},
    ],
)
def test_usage_that_cannot_be_true_is_unmetered(usage: Any) -> None:
    answer = ask(says(usage=usage))
    assert answer.text == "0.5"
    cost = answer.cost
    assert (cost.tokens_in, cost.tokens_out, cost.money, cost.calls, cost.unmetered) == (0, 0, 0.0, 1, 1)


@pytest.mark.parametrize("cached", [True, -5, 101, None, "40"])
def test_cached_tokens_that_cannot_be_true_are_paid_in_full(cached: Any) -> None:
    cost = ask(says(usage={**USAGE, "prompt_tokens_details": {"cached_tokens": cached}})).cost
    assert (cost.tokens_in, cost.tokens_cached, cost.unmetered) == (100, 0, 0)
    assert cost.money == pytest.approx((100 * 2.0 + 20 * 10.0) / 1e6)


def test_an_unknown_price_says_unknown() -> None:
    settings = replace(SETTINGS, price=None)
    assert ask(good, settings=settings).cost.money is None
    assert ask(status(422), settings=settings).cost.money is None


def test_a_server_that_never_answers_is_a_timeout_and_not_asked_again() -> None:
    server = Server(hangs)
    answer = asyncio.run(endpoint(server, replace(SETTINGS, timeout_s=0.02))(ASKED))
    assert (answer.failure, answer.detail) == (Failure.TIMEOUT, "no answer within 0.02 s")
    assert (answer.cost.calls, answer.cost.unmetered, len(server.requests)) == (1, 1, 1)
    server = Server(raises(httpx.ReadTimeout), good)
    assert asyncio.run(endpoint(server)(ASKED)).failure == Failure.TIMEOUT
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (status(401), r"api_key"),
        (status(403), r"api_key"),
        (status(404), r"judge\.model"),
        (status(402), "account"),
        (status(429, "You exceeded your current quota", code="insufficient_quota"), "account"),
    ],
)
def test_what_no_call_can_mend_stops_with_one_line(script: Script, words: str) -> None:
    with pytest.raises(Unreachable, match=words) as raised:
        ask(script)
    assert "\n" not in str(raised.value)
    assert "judge.test" in str(raised.value)
    assert raised.value.exit_code == 3


# Overload and outages


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
    answer = asyncio.run(endpoint(server, time=time)(ASKED))
    assert (answer.text, answer.retried, answer.cost.calls) == ("0.5", {reason: 2}, 1)
    assert time.reasons == [reason, reason]
    first, second = (seconds for _, seconds in time.waits)
    assert 0.25 <= first <= 0.5
    assert 0.5 <= second <= 1.0
    assert answer.cost.seconds == pytest.approx(first + second)


def test_patience_ends_after_its_seconds() -> None:
    server, time = Server(good, status(503, "overloaded")), Time()
    judge = endpoint(server, time=time)

    async def twice() -> Answer:
        await judge(ASKED)
        return await judge(ASKED)

    answer = asyncio.run(twice())
    assert answer.failure == Failure.TRANSPORT
    assert "overloaded" in answer.detail
    assert "100 s" in answer.detail
    assert time.seconds - 1000 == pytest.approx(100)
    assert answer.retried == {"503": len(server.requests) - 2}
    assert answer.cost.unmetered == 1


def test_no_patience_means_one_request() -> None:
    server = Server(status(500))
    answer = asyncio.run(endpoint(server, replace(SETTINGS, patience_s=0))(ASKED))
    assert (answer.failure, answer.retried, len(server.requests)) == (Failure.TRANSPORT, {}, 1)


def test_a_server_nobody_started_is_given_up_soon_and_one_that_answered_is_waited_for() -> None:
    time = Time()
    answer = asyncio.run(endpoint(Server(dead), time=time)(ASKED))
    assert answer.failure == Failure.TRANSPORT
    assert f"no server answers at {URL}" in answer.detail
    assert time.seconds - 1000 == pytest.approx(FIRST_CONTACT_S)

    time = Time()
    judge = endpoint(Server(good, *[dead] * 6, good), time=time)
    assert asyncio.run(judge(ASKED)).retried == {}
    assert asyncio.run(judge(ASKED)).retried == {"unreached": 6}
    assert time.seconds - 1000 > 2 * FIRST_CONTACT_S


def test_once_given_up_a_server_that_is_down_holds_up_nobody_for_long() -> None:
    time = Time()
    server = Server(good, dead)
    judge = endpoint(server, time=time)
    asyncio.run(judge(ASKED))
    assert asyncio.run(judge(ASKED)).failure == Failure.TRANSPORT
    assert time.seconds - 1000 == pytest.approx(100)
    assert asyncio.run(judge(ASKED)).failure == Failure.TRANSPORT
    assert time.seconds - 1000 == pytest.approx(100 + FIRST_CONTACT_S)


def test_the_servers_own_wait_is_kept() -> None:
    time = Time()
    answer = asyncio.run(endpoint(Server(status(429, headers={"retry-after": "17"}), good), time=time)(ASKED))
    assert (answer.retried, time.waits) == ({"429": 1}, [("429", 17.0)])
    time = Time()
    answer = asyncio.run(endpoint(Server(status(429, headers={"retry-after": "9999"})), time=time)(ASKED))
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

    return asyncio.run(all_at_once())


def test_in_a_storm_all_wait_and_fewer_go_at_once() -> None:
    """Of 16 at once the server takes 3 and asks the others to wait 9 s; nothing is lost or paid twice."""
    time = Time()

    async def crowded(server: Server, _: dict[str, Any]) -> httpx.Response:
        full = server.there > 3
        await asyncio.sleep(0)
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

    assert asyncio.run(watch()) == [1020.0] * 3
    assert time.waits == [("503", 20.0)] * 2


def test_pace_halves_once_an_overload_and_creeps_up() -> None:
    async def watch() -> None:
        pace = Pace(Time().clock(), lambda *_: None)
        async with pace.turn() as a, pace.turn() as b, pace.turn() as c, pace.turn() as d:
            for turn in (a, b, c, d):
                pace.slow_down(turn)
            assert pace.limit == 2.0
        async with pace.turn() as a:
            pace.slow_down(a)
        assert pace.limit == 1.0
        limits = []
        for _ in range(4):
            pace.speed_up()
            limits.append(pace.limit)
        assert limits == pytest.approx([2.0, 2.5, 2.9, 2.9 + 1 / 2.9])

    asyncio.run(watch())


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

    went = asyncio.run(watch())
    assert went[0] == "a"
    assert went[-2:] == ["d", "e"]


def test_cancellation_ends_one_request_and_leaves_the_others() -> None:
    async def first_hangs(server: Server, _: dict[str, Any]) -> httpx.Response:
        await asyncio.Event().wait() if len(server.requests) == 1 else await asyncio.sleep(0)
        return completion()

    async def cancel_one() -> Answer:
        server = Server(first_hangs)
        judge = endpoint(server)
        lost = asyncio.create_task(judge(ASKED))
        while not server.requests:
            await asyncio.sleep(0)
        kept = asyncio.create_task(judge(ASKED))
        await asyncio.sleep(0)
        lost.cancel()
        with suppress(asyncio.CancelledError):
            await lost
        assert lost.cancelled()
        await kept
        return await judge(ASKED)

    assert asyncio.run(cancel_one()).text == "0.5"


# What a server does not take


def picky(
    *refused: str, text: str = "Unsupported parameter: '{}' is not supported with this model."
) -> Script:
    def script(_: Server, request: dict[str, Any]) -> httpx.Response:
        for name in refused:
            if name in request:
                error = {"message": text.format(name), "type": "invalid_request_error"}
                return httpx.Response(400, json={"error": error})
        return completion()

    return script


@pytest.mark.parametrize(
    ("refused", "text"),
    [
        ("max_tokens", "Unsupported parameter: '{}'. Use 'max_completion_tokens' instead."),
        (
            "temperature",
            "Unsupported value: '{}' does not support 0. Only the default (1) value is supported.",
        ),
        ("temperature", "invalid {}: only 1 is allowed for this model"),
        ("seed", 'Unknown name "{}": Cannot find field.'),
        ("seed", "[{{'type': 'extra_forbidden', 'loc': ['body', '{}'], 'msg': 'Extra inputs'}}]"),
    ],
)
def test_a_field_that_is_not_taken_is_left_out_from_then_on(refused: str, text: str) -> None:
    server = Server(picky(refused, text=text))
    judge = endpoint(server)
    first, second = asyncio.run(judge(ASKED)), asyncio.run(judge(ASKED))
    assert (first.text, first.retried, first.cost.calls) == ("0.5", {"adapted": 1}, 1)
    assert (second.text, second.retried) == ("0.5", {})
    assert len(server.requests) == 3
    sent = {"model", "messages", "max_tokens", "temperature", "seed"} - {refused}
    sent |= {"max_completion_tokens"} if refused == "max_tokens" else set()
    assert set(server.requests[2]) == sent
    if refused == "max_tokens":
        assert server.requests[2]["max_completion_tokens"] == 64


def test_several_fields_are_left_out_one_after_the_other() -> None:
    answer = ask(picky("max_tokens", "temperature", "seed"))
    assert (answer.text, answer.retried) == ("0.5", {"adapted": 3})


def test_a_named_param_says_which_field() -> None:
    def script(_: Server, request: dict[str, Any]) -> httpx.Response:
        error = {"message": "max_tokens aside, unsupported", "param": "seed"}
        return httpx.Response(400, json={"error": error}) if "seed" in request else completion()

    server = Server(script)
    assert asyncio.run(endpoint(server)(ASKED)).text == "0.5"
    assert set(server.requests[1]) == {"model", "messages", "max_tokens", "temperature"}


@pytest.mark.parametrize(
    "script",
    [
        picky("messages", text="unsupported content in messages"),
        picky("model", text="unknown model"),
        picky("max_tokens", text="{} is too large, at most 16 are supported"),
        picky("own", text="unsupported parameter '{}'"),
    ],
)
def test_other_refusals_are_failures(script: Script) -> None:
    server = Server(script)
    answer = asyncio.run(endpoint(server, replace(SETTINGS, request={"own": 1}))(ASKED))
    assert (answer.failure, answer.retried, len(server.requests)) == (Failure.TRANSPORT, {}, 1)


@pytest.mark.parametrize(
    "script",
    [
        picky("logprobs", text="{} is not supported with this model"),
        status(403, "You are not allowed to request logprobs from this model."),
        status(400, "Logprobs is not enabled for models/m"),
        good,
        says(logprobs={"content": None}),
        says(logprobs={"content": [{"token": 3}]}),
    ],
)
def test_no_log_probabilities_where_they_are_needed_is_a_failure_that_says_so(script: Script) -> None:
    answer = ask(script, request=DIGIT)
    assert answer.failure == Failure.TRANSPORT
    assert "the endpoint gives no log-probabilities" in answer.detail
    assert answer.alternatives in ((), ((),))


def test_fewer_alternatives_are_asked_for_where_the_server_has_a_limit() -> None:
    def at_most_5(_: Server, request: dict[str, Any]) -> httpx.Response:
        if request["top_logprobs"] > 5:
            return status(400, "Requested sample logprobs of 20, which is greater than max allowed: 5")(_, {})
        return says(logprobs={"content": [{"token": "7", "logprob": -0.5}]})(_, {})

    answer = ask(at_most_5, request=replace(ASKED, top_logprobs=20))
    assert (answer.retried, answer.alternatives) == ({"adapted": 1}, ((("7", -0.5),),))


def test_alternatives_of_the_first_tokens_are_kept() -> None:
    def place(token: str, logprob: Any, *top: tuple[Any, Any]) -> dict[str, Any]:
        return {
            "token": token,
            "logprob": logprob,
            "top_logprobs": [{"token": t, "logprob": value} for t, value in top],
        }

    places = [
        place("7", -0.5, ("8", -1.0), ("7", -0.5)),
        place("x", -3.0, ("y", -0.1), (4, -1.0), ("z", None), ("w", True)),
        *[place("a", -0.25) for _ in range(30)],
    ]
    answer = ask(says("7x", logprobs={"content": places}), request=DIGIT)
    assert answer.failure is None
    assert len(answer.alternatives) == 16
    assert answer.alternatives[0] == (("7", -0.5), ("8", -1.0))
    assert answer.alternatives[1] == (("y", -0.1), ("x", -3.0))
    assert answer.alternatives[2] == (("a", -0.25),)
    assert ask(says("7", logprobs={"content": places})).alternatives == ()  # nobody asked for them


# Settings and names


def test_wrong_settings_name_the_key() -> None:
    for wrong in (0, -1, math.inf, math.nan):
        with pytest.raises(ConfigError, match=r"judge\.timeout_s"):
            EndpointSettings(timeout_s=wrong)
    with pytest.raises(ConfigError, match=r"judge\.patience_s"):
        EndpointSettings(patience_s=-1)
    with pytest.raises(ConfigError, match=r"judge\.temperature"):
        EndpointSettings(temperature=-0.1)
    with pytest.raises(ConfigError, match=r"judge\.request.*'stream'"):
        EndpointSettings(request={"stream": True})


def test_the_identity_tells_judges_apart_but_not_addresses_of_one() -> None:
    def judge(url: str = URL, model: str = "m", **settings: Any) -> Endpoint:
        return Endpoint(url, "k", model, settings=EndpointSettings(**settings))

    kinds = [
        judge(), judge("http://other/v1"), judge(model="n"), judge(temperature=0.5), judge(seed=1),
        judge(seed=None), judge(request={"a": 1}), judge(request={"a": 2}),
    ]  # fmt: skip
    assert len({kind.identity for kind in kinds}) == len(kinds)
    same = judge(timeout_s=1, patience_s=1, price=PRICE)
    assert same.identity == judge().identity == judge().at("http://session/1").identity  # type: ignore[attr-defined]
    assert judge(request={"a": 1, "b": 2}).identity == judge(request={"b": 2, "a": 1}).identity
    assert judge(request={"a": 1}).name == "m at http://judge.test/v1, temperature 0, seed 0, a 1"
    assert "k" not in judge().identity


@pytest.mark.parametrize(
    ("tokens", "money"),
    [((1_000_000, 0, 0), 2.0), ((0, 0, 1_000_000), 10.0), ((1_000_000, 1_000_000, 0), 0.5), ((0, 0, 0), 0.0)],
)
def test_a_price_is_money_per_million_tokens(tokens: tuple[int, int, int], money: float) -> None:
    assert PRICE.of(*tokens) == pytest.approx(money)
    full = Price(2.0, 10.0).of(*tokens)
    assert full == pytest.approx(money if tokens[1] == 0 else 2.0)


def test_a_wrong_price_is_refused() -> None:
    for wrong in (-1.0, math.nan, math.inf):
        for price in ((wrong, 1.0), (1.0, wrong), (1.0, 1.0, wrong)):
            with pytest.raises(ConfigError, match="price"):
                Price(*price)
    with pytest.raises(InputError):
        PRICE.of(1, 2, 0)


# Over a real socket


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
        judge = Endpoint(server.url, "k", "m", settings=SETTINGS, on_wait=told, clock=quick)

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
        assert ready.wait(5)
        judge = Endpoint(server.url, "", "m", settings=SETTINGS)

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
        thread.join(5)
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

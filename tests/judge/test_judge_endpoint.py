"""One call to a judge: what is sent, what comes of it, and what it cost."""

import asyncio
import json
import math
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from typing import Any

import httpx
import pytest
from scripted_judge import (
    ASKED,
    DIGIT,
    PRICE,
    SETTINGS,
    URL,
    USAGE,
    Script,
    Server,
    ask,
    completion,
    endpoint,
    good,
    hangs,
    raises,
    says,
    status,
)

import virtual_time
from strop.errors import ConfigError, Unreachable
from strop.judge.ask import Answer
from strop.judge.endpoint import Endpoint, EndpointSettings
from strop.judge.verdict import Failure


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

    virtual_time.run(both())
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
    virtual_time.run(endpoint(server, replace(SETTINGS, temperature=None, seed=None))(ASKED))
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
    answer = virtual_time.run(endpoint(server)(ASKED))
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


def test_x51_a_server_that_never_answers_is_a_timeout_and_not_asked_again() -> None:
    server = Server(hangs)
    answer = virtual_time.run(endpoint(server, replace(SETTINGS, timeout_s=20))(ASKED))
    assert (answer.failure, answer.detail) == (Failure.TIMEOUT, "no answer within 20 s")
    assert (answer.cost.calls, answer.cost.unmetered, len(server.requests)) == (1, 1, 1)
    server = Server(raises(httpx.ReadTimeout), good)
    assert virtual_time.run(endpoint(server)(ASKED)).failure == Failure.TIMEOUT
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

    assert virtual_time.run(cancel_one()).text == "0.5"


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

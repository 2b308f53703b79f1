"""What a server does not take is left out from then on; what is needed and missing is said."""

import asyncio
from dataclasses import replace
from typing import Any

import httpx
import pytest
from scripted_judge import (
    ASKED,
    DIGIT,
    SETTINGS,
    Script,
    Server,
    ask,
    completion,
    endpoint,
    good,
    says,
    status,
)

from strop.judge.verdict import Failure


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

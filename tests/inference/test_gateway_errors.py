"""Every refusal is an OpenAI error with the right status, and leaves nothing recorded."""

import dataclasses

import openai
import pytest

from strop.errors import EngineError, InputError, ServerLost

HELLO = [{"role": "user", "content": "hello"}]


def ask(made, **body):
    return made.client().chat.completions.create(**{"model": "scripted", "messages": HELLO, **body})


def test_wrong_key(bench, run):
    made = bench("ok")
    for key in ("other", "run-ke", "run-keyy", ""):
        with pytest.raises(openai.AuthenticationError) as caught:
            run(made.client(api_key=key or "-").models.list())
        assert caught.value.code == "invalid_api_key"
    assert made.sampler.asked == []


def test_unknown_model(bench, run):
    made = bench("ok")
    with pytest.raises(openai.NotFoundError) as caught:
        run(ask(made, model="gpt-9"))
    assert caught.value.code == "model_not_found"
    assert "scripted" in caught.value.message
    with pytest.raises(openai.NotFoundError):
        run(made.client().models.retrieve("gpt-9"))


def test_unknown_session_and_path(bench, run):
    made = bench("ok")
    with pytest.raises(openai.NotFoundError) as caught:
        run(made.client("http://gateway/s/nobody/v1").models.list())
    assert caught.value.code == "session_not_found"
    with pytest.raises(openai.NotFoundError) as caught:
        run(made.client().embeddings.create(model="scripted", input="x"))
    assert caught.value.code == "unknown_url"


def test_prompt_longer_than_the_context(bench, run):
    made = bench("ok", max_context=24)
    with pytest.raises(openai.BadRequestError) as caught:
        run(ask(made))
    assert caught.value.code == "context_length_exceeded"
    assert "24" in caught.value.message


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": "hello"}, "messages"),
        ({"messages": [{"role": "judge", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": None}]}, "messages[0].content"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
            "messages[0].content[0]",
        ),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"temperature": 2.5}, "temperature"),
        ({"top_p": -0.1}, "top_p"),
        ({"n": 0}, "n"),
        ({"n": 1.5}, "n"),
        ({"seed": "x"}, "seed"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"stop": ["a", "b", "c", "d", "e"]}, "stop"),
        ({"stop": [""]}, "stop"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"tools": [{"type": "web_search"}]}, "tools[0]"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"frequency_penalty": 0.5}, "frequency_penalty"),
        ({"logit_bias": {"5": 1}}, "logit_bias"),
    ],
)
def test_what_cannot_be_used_is_named(bench, run, lookup, body, param):
    if "tool_choice" in body:
        body = {**body, "tools": [lookup]}
    made = bench("ok")
    with pytest.raises(openai.BadRequestError) as caught:
        run(made.client().post("/chat/completions", body=as_json(body), cast_to=object))
    assert caught.value.param == param
    assert caught.value.type == "invalid_request_error"
    assert "\n" not in caught.value.message
    assert made.sampler.asked == []


def as_json(body):
    return {"model": "scripted", "messages": HELLO, **body}


def test_neutral_and_unknown_parameters_pass(bench, run):
    made = bench("ok")
    reply = run(
        ask(
            made,
            frequency_penalty=0,
            response_format={"type": "text"},
            extra_body={"top_k": -1, "made_up": 1},
        )
    )
    assert reply.choices[0].message.content == "ok"


def test_body_that_is_not_json_or_not_unicode(bench, run):
    made = bench("ok")

    async def post(body):
        http = made.client()._client
        headers = {"authorization": "Bearer run-key"}
        return await http.post("http://gateway/v1/chat/completions", content=body, headers=headers)

    lone = rb'{"model": "scripted", "messages": [{"role": "user", "content": "\ud800"}]}'
    for body in (b"{", b"[1]", b"\xff", b"[" * 100_000, lone):
        answer = run(post(body))
        assert answer.status_code == 400
        assert answer.json()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (InputError("too long for the decoder"), openai.BadRequestError),
        (EngineError("the engine is closed"), openai.InternalServerError),
        (KeyError("secret"), openai.InternalServerError),
    ],
)
def test_a_failing_sampler_is_an_error_and_no_turn(bench, run, error, expected):
    def fail(_prompt):
        raise error

    made = bench(answer=fail)
    with pytest.raises(expected):
        run(made.session().chat.completions.create(model="scripted", messages=HELLO))
    assert made.gateway.take("s") == ()


@pytest.mark.parametrize("stream", [False, True])
def test_a_lost_server_is_told_and_the_session_remembers(bench, run, stream):
    def fail(_prompt):
        raise ServerLost("vLLM was lost while it answered")

    made = bench(answer=fail)
    client = made.session()
    assert made.gateway.lost("s") is None

    async def ask_all():
        answer = await client.chat.completions.create(model="scripted", messages=HELLO, stream=stream)
        return [chunk async for chunk in answer]

    with pytest.raises(openai.APIError) as caught:
        run(ask_all())
    assert caught.value.code == "server_lost"
    assert stream or caught.value.status_code == 503
    assert made.gateway.lost("s") == "vLLM was lost while it answered"
    assert made.gateway.take("s") == ()
    with pytest.raises(InputError, match="is not open"):
        made.gateway.lost("s")


@pytest.mark.parametrize("logprobs", [(), (-0.5,) * 2, (0.1,) * 3, (float("nan"),) * 3])
def test_t03_t08_a_sampler_that_breaks_its_word_is_an_error(bench, run, monkeypatch, logprobs):
    made = bench("ok")
    honest = made.sampler.sample

    async def broken(*args, **options):
        return dataclasses.replace(await honest(*args, **options), logprobs=logprobs)

    monkeypatch.setattr(made.sampler, "sample", broken)
    with pytest.raises(openai.InternalServerError, match="log-probs"):
        run(made.session().chat.completions.create(model="scripted", messages=HELLO))
    assert made.gateway.take("s") == ()

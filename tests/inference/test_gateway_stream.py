"""Streaming, driven by the openai SDK and by raw ASGI where a client goes away."""

import asyncio
import json

import openai
import pytest
from gateway_bench import KEY

from strop.inference.scripted import ByteTokenizer

HELLO = [{"role": "user", "content": "hello"}]


async def chunks_of(client, **options):
    stream = await client.chat.completions.create(model="scripted", messages=HELLO, stream=True, **options)
    return [chunk async for chunk in stream]


def content_of(chunks, index=0):
    deltas = [choice.delta for chunk in chunks for choice in chunk.choices if choice.index == index]
    return "".join(delta.content or "" for delta in deltas)


def test_stream_says_what_the_plain_reply_says(bench, run):
    chunks = run(chunks_of(bench("  two words, 世界 \n").client()))
    assert content_of(chunks) == "two words, 世界"
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [c.choices[0].delta.role for c in chunks[1:]] == [None] * (len(chunks) - 1)
    assert [c.choices[0].finish_reason for c in chunks if c.choices[0].finish_reason] == ["stop"]
    assert chunks[-1].model == "scripted-v0"
    assert len({c.id for c in chunks}) == 1
    assert all(c.usage is None for c in chunks)


def test_text_comes_in_pieces_that_never_split_a_character(bench, run):
    chunks = run(chunks_of(bench("a🙂b世c").client()))
    pieces = [c.choices[0].delta.content for c in chunks if c.choices[0].delta.content]
    assert pieces == ["a", "🙂", "b", "世", "c"]


def test_usage_comes_last_where_asked_for(bench, run):
    chunks = run(chunks_of(bench("ok").client(), stream_options={"include_usage": True}))
    assert chunks[-1].choices == []
    assert (chunks[-1].usage.prompt_tokens, chunks[-1].usage.completion_tokens) == (24, 3)


def test_tool_call_text_is_never_streamed_as_content(bench, run, lookup):
    made = bench('Wait. <tool_call>{"name": "lookup", "arguments": {"order": "A1"}}</tool_call>')
    chunks = run(chunks_of(made.session(), tools=[lookup]))
    assert content_of(chunks) == "Wait."
    (call,) = [call for c in chunks for call in c.choices[0].delta.tool_calls or ()]
    assert (call.index, call.function.name) == (0, "lookup")
    assert json.loads(call.function.arguments) == {"order": "A1"}
    assert chunks[-1].choices[0].finish_reason == "tool_calls"
    (recorded,) = made.gateway.take("s")
    assert recorded.reply["tool_calls"][0]["id"] == call.id


def test_t07_a_stream_of_a_call_is_recorded_with_every_token(bench, run, lookup):
    """Also those of the call that no chunk holds as text; the usage counts them all."""
    text = '<tool_call>{"name": "lookup", "arguments": {"order": "A1"}}</tool_call>'
    made = bench(text)
    chunks = run(chunks_of(made.session(), tools=[lookup], stream_options={"include_usage": True}))
    (recorded,) = made.gateway.take("s")
    sampled = recorded.turn.sampled_ids
    assert ByteTokenizer().decode(sampled) == text
    assert chunks[-1].usage.completion_tokens == len(sampled) == len(recorded.turn.logprobs)


def test_text_that_only_begins_like_a_call_is_content(bench, run, lookup):
    made = bench("1 <tool box and <tool_call>no name")
    assert content_of(run(chunks_of(made.client(), tools=[lookup]))) == "1 <tool box and <tool_call>no name"


def test_stop_string_does_not_leak(bench, run):
    chunks = run(chunks_of(bench("one two\nEND three").client(), stop="\nEND"))
    assert content_of(chunks) == "one two"


def test_choices_are_streamed_apart(bench, run):
    made = bench("first", "second")
    chunks = run(chunks_of(made.session(), n=2))
    assert {content_of(chunks, 0), content_of(chunks, 1)} == {"first", "second"}
    assert [call.choice for call in made.gateway.take("s")] == [0, 1]


def test_logprobs_of_a_stream_cover_every_token(bench, run):
    chunks = run(chunks_of(bench("abc").client(), logprobs=True))
    tokens = [t for c in chunks if c.choices[0].logprobs for t in c.choices[0].logprobs.content]
    assert [t.token for t in tokens] == ["a", "b", "c", ""]


def test_a_sampler_that_fails_ends_the_stream_with_its_error(bench, run):
    def broken(_prompt):
        raise RuntimeError("out of memory")

    made = bench(answer=broken)
    with pytest.raises(openai.APIError, match="out of memory"):
        run(chunks_of(made.session()))
    assert made.gateway.take("s") == ()


def scope_of(path):
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "scheme": "http",
        "headers": [(b"authorization", f"Bearer {KEY}".encode())],
    }


async def hang_up(made, *, stream, after):
    """Send one request, and close the connection once `after` messages have come back."""
    body = json.dumps({"model": "scripted", "messages": HELLO, "stream": stream}).encode()
    inbox: asyncio.Queue = asyncio.Queue()
    inbox.put_nowait({"type": "http.request", "body": body, "more_body": False})
    sent = []

    async def send(message):
        sent.append(message)
        if len(sent) == after:
            inbox.put_nowait({"type": "http.disconnect"})

    if not after:
        asyncio.get_running_loop().call_later(0.05, inbox.put_nowait, {"type": "http.disconnect"})
    url = made.gateway.open(["s"])["s"]
    await made.gateway.app(
        scope_of(url.removeprefix("http://gateway") + "/chat/completions"), inbox.get, send
    )
    return sent


@pytest.mark.parametrize(("stream", "after"), [(True, 3), (False, 0)])
def test_a_client_that_goes_away_stops_the_sampling(bench, run, stream, after):
    made = bench("x" * 10_000, pause_s=0.001, max_context=20_000)
    run(hang_up(made, stream=stream, after=after))
    assert made.sampler.cancelled == 1
    assert made.gateway.take("s") == ()

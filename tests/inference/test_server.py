"""A real server on loopback: the SDK sync and async, sockets that break, ports in use."""

import asyncio
import json
import socket
import time

import openai
import pytest
from gateway_bench import KEY

from strop.errors import InputError
from strop.inference.client import client, close_connections
from strop.inference.server import serve

HELLO = [{"role": "user", "content": "hello"}]


@pytest.fixture
def served(bench):
    made = bench(answer=lambda prompt: "x" * 5000 if "endless" in prompt else "hi", max_context=9000)
    with serve(made.gateway.app) as server:
        made.gateway.root = server.url
        yield made


def test_sync_sdk_plain_and_streaming(served):
    with openai.OpenAI(base_url=served.gateway.base_url, api_key=KEY, max_retries=0) as sdk:
        reply = sdk.chat.completions.create(model="scripted", messages=HELLO)
        stream = sdk.chat.completions.create(model="scripted", messages=HELLO, stream=True)
        pieces = [chunk.choices[0].delta.content or "" for chunk in stream]
    assert reply.choices[0].message.content == "".join(pieces) == "hi"


def test_many_clients_share_one_pool_and_survive_each_others_close(served, run):
    urls = served.gateway.open([f"s/{index} #" for index in range(64)])

    async def ask(url):
        async with client(url, KEY, 30) as sdk:
            return await sdk.chat.completions.create(model="scripted", messages=HELLO)

    async def everyone():
        replies = await asyncio.gather(*map(ask, urls.values()))
        again = await ask(served.gateway.base_url)
        await close_connections()
        return [*replies, again]

    assert {reply.choices[0].message.content for reply in run(everyone())} == {"hi"}
    assert {len(served.gateway.take(key)) for key in urls} == {1}


def test_a_client_killed_in_mid_stream_stops_the_sampling(served):
    url = served.gateway.open(["s"])["s"]
    host, port = served.gateway.root.removeprefix("http://").split(":")
    message = {"role": "user", "content": "endless"}
    body = json.dumps({"model": "scripted", "messages": [message], "stream": True})
    head = f"POST {url[len(served.gateway.root) :]}/chat/completions HTTP/1.1\r\nHost: x\r\n"
    with socket.create_connection((host, int(port))) as connection:
        head += f"Authorization: Bearer {KEY}\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall((head + body).encode())
        assert b"200 OK" in connection.recv(1000)
    wait_until(lambda: served.sampler.cancelled == 1)
    assert served.gateway.take("s") == ()


def test_take_from_another_thread_ends_a_running_call(served, run):
    url = served.gateway.open(["s"])["s"]

    async def hang():
        async with openai.AsyncOpenAI(base_url=url, api_key=KEY, max_retries=0) as sdk:
            call = asyncio.ensure_future(
                sdk.chat.completions.create(
                    model="scripted", messages=[{"role": "user", "content": "endless"}]
                )
            )
            while not served.sampler.asked:
                await asyncio.sleep(0.001)
            served.gateway.take("s")
            with pytest.raises(openai.ConflictError):
                await call

    run(hang())


def test_port_in_use_is_one_line(bench):
    app = bench("hi").gateway.app
    with serve(app) as server:
        port = int(server.url.rsplit(":", 1)[1])
        with pytest.raises(InputError, match=f"port {port}") as caught:
            serve(app, port=port)
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)


def test_close_twice_and_the_port_is_free_again(bench):
    app = bench("hi").gateway.app
    server = serve(app)
    port = int(server.url.rsplit(":", 1)[1])
    server.close()
    server.close()
    with serve(app, port=port) as again:
        assert again.url == server.url


def test_close_ends_what_runs_and_logs_nothing(served, capfd, caplog):
    endless = [{"role": "user", "content": "endless"}]
    server = serve(served.gateway.app)
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key=KEY, max_retries=0) as sdk:
        stream = iter(sdk.chat.completions.create(model="scripted", messages=endless, stream=True))
        next(stream)
        server.close()
        with pytest.raises(openai.APIError, match="closing"):
            list(stream)
    assert served.sampler.cancelled == 1
    assert capfd.readouterr() == ("", "")
    assert caplog.records == []


def test_a_request_that_waits_at_close_is_told_so(bench):
    made = bench("x" * 5000, pause_s=0.001, max_context=9000)
    server = serve(made.gateway.app)

    async def ask():
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key=KEY, max_retries=0) as sdk:
            call = asyncio.ensure_future(sdk.chat.completions.create(model="scripted", messages=HELLO))
            while not made.sampler.asked:
                await asyncio.sleep(0.001)
            await asyncio.to_thread(server.close)
            with pytest.raises(openai.InternalServerError) as caught:
                await call
            return caught.value.status_code

    assert asyncio.run(ask()) == 503


def wait_until(condition):
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.005)

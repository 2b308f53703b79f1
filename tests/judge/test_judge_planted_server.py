"""The planted judge over loopback: the protocol, the faults, and the account of what was served."""

import asyncio
import json
import math
import socket
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from scipy.stats import binomtest

from strop.errors import InputError
from strop.judge.planted import Faults, Planted, PlantedServer, Served, Service

PATIENCE = 60.0


def ask(seed: int = 0, qualities: tuple[float, ...] = (0.2, 0.7), **more: Any) -> dict[str, Any]:
    blocks = [f"<attempt {i} abcd>\nquality={q}\n</attempt abcd>" for i, q in enumerate(qualities, start=1)]
    user = "\n".join([*blocks, '{"scores_abcd": [...]}'])
    return {"model": "m", "messages": [{"role": "user", "content": user}], "seed": seed, **more}


def digit(**more: Any) -> dict[str, Any]:
    user = "<attempt 1 abcd>\nquality=0.5\n</attempt abcd>\nReply with one digit."
    return {"model": "m", "messages": [{"role": "user", "content": user}], **more}


def post(server: PlantedServer, body: Any, read: float = PATIENCE, **headers: str) -> httpx.Response:
    """`read`: seconds to wait for the answer to what was sent."""
    timeout = httpx.Timeout(PATIENCE, read=read)
    url = f"{server.base_url}/chat/completions"
    return httpx.post(url, json=body, headers=headers, timeout=timeout)


def content(response: httpx.Response) -> str:
    said = response.json()["choices"][0]["message"]["content"]
    assert isinstance(said, str)
    return said


def eventually(holds: Any) -> None:
    """Wait until something that another thread brings about holds."""
    ticking = threading.Event()
    for _ in range(int(PATIENCE / 0.005)):
        if holds():
            return
        ticking.wait(0.005)
    raise AssertionError("it never came to hold")


@pytest.fixture
def server() -> Iterator[PlantedServer]:
    with PlantedServer() as running:
        yield running


def test_the_openai_client_reads_replies_and_usage(server: PlantedServer) -> None:
    with openai.OpenAI(base_url=server.base_url, api_key="any", max_retries=0) as client:
        assert [model.id for model in client.models.list().data] == ["planted"]
        completion = client.chat.completions.create(**ask())
    said = completion.choices[0]
    assert said.finish_reason == "stop"
    scores = [(i["trajectory_id"], i["score"]) for i in json.loads(said.message.content)["scores_abcd"]]
    assert scores == [("1", 0.2), ("2", 0.7)]
    user = ask()["messages"][0]["content"]
    assert completion.usage.prompt_tokens == math.ceil(len(user) / 4)
    assert completion.usage.completion_tokens == math.ceil(len(said.message.content) / 4)
    used = completion.usage
    assert server.served == Served(
        requests=1, prompt_tokens=used.prompt_tokens, completion_tokens=used.completion_tokens
    )
    assert server.requests[0]["messages"] == ask()["messages"]


def test_a_digit_comes_with_its_distribution_where_asked(server: PlantedServer) -> None:
    with openai.OpenAI(base_url=server.base_url, api_key="any", max_retries=0) as client:
        full = client.chat.completions.create(**digit(logprobs=True, top_logprobs=20)).choices[0]
        three = client.chat.completions.create(**digit(logprobs=True, top_logprobs=3)).choices[0]
        none = client.chat.completions.create(**digit()).choices[0]
    (token,) = full.logprobs.content
    assert token.token == full.message.content
    chances = {int(each.token): math.exp(each.logprob) for each in token.top_logprobs}
    assert chances == pytest.approx({d: math.comb(9, d) / 512 for d in range(10)})
    assert {each.token for each in three.logprobs.content[0].top_logprobs} < {"3", "4", "5", "6"}
    assert none.logprobs is None
    server.judge = Planted(logprobs=False)
    assert post(server, digit(logprobs=True, top_logprobs=3)).json()["choices"][0]["logprobs"] is None


def test_concurrent_calls_get_what_the_judge_says_without_a_server(server: PlantedServer) -> None:
    server.judge = Planted(noise=0.2, bad_replies={"fenced": 0.3})
    bodies = [ask(seed) for seed in range(60)]

    async def all_at_once() -> list[httpx.Response]:
        async with httpx.AsyncClient(timeout=PATIENCE) as client:
            url = f"{server.base_url}/chat/completions"
            return await asyncio.gather(*(client.post(url, json=body) for body in reversed(bodies)))

    texts = [content(response) for response in reversed(asyncio.run(all_at_once()))]
    assert texts == [server.judge.reply(body).text for body in bodies]
    assert server.served.requests == 60
    assert server.served.completion_tokens == sum(math.ceil(len(text) / 4) for text in texts)


def test_a_storm_of_429_names_the_wait_and_passes(server: PlantedServer) -> None:
    server.faults = Faults(refuse_next=2, retry_after_s=0.25)
    refused = [post(server, ask()) for _ in range(2)]
    assert [r.status_code for r in refused] == [429, 429]
    assert refused[0].headers["retry-after"] == "0.25"
    assert post(server, ask()).status_code == 200
    assert server.refused == {429: 2}
    assert server.served.requests == 1
    assert server.faults.refuse_next == 0
    server.faults = Faults(refuse_next=1)
    assert "retry-after" not in post(server, ask()).headers


def test_more_than_so_many_at_once_get_429(server: PlantedServer) -> None:
    server.faults = Faults(most_at_once=2, hang_next=math.inf)

    async def six() -> list[int]:
        async with httpx.AsyncClient(timeout=PATIENCE) as client:
            url = f"{server.base_url}/chat/completions"
            calls = [asyncio.ensure_future(client.post(url, json=ask(seed))) for seed in range(6)]
            while server.refused.get(429, 0) < 4:
                await asyncio.sleep(0.005)
            server.release()
            return sorted(response.status_code for response in await asyncio.gather(*calls))

    assert asyncio.run(six()) == [200, 200, 429, 429, 429, 429]
    assert server.most_in_flight == 2


def test_failures_come_as_told(server: PlantedServer) -> None:
    server.faults = Faults(fail_next=1, fail_status=529)
    assert [post(server, ask()).status_code for _ in range(2)] == [529, 200]
    server.faults = Faults(fail_rate=0.3)
    with httpx.Client() as client:
        url = f"{server.base_url}/chat/completions"
        failed = sum(client.post(url, json=ask(seed)).status_code == 503 for seed in range(300))
    interval = binomtest(failed, 300).proportion_ci(0.9999)
    assert interval.low < 0.3 < interval.high
    assert server.refused == {529: 1, 503: failed}
    assert server.served.requests == 301 - failed


def test_a_request_that_hangs_is_answered_when_released_or_abandoned_when_left(server: PlantedServer) -> None:
    server.faults = Faults(hang_next=1)
    with pytest.raises(httpx.ReadTimeout):
        post(server, ask(), read=0.1)
    eventually(lambda: server.abandoned == 1)
    assert server.served == Served()
    assert post(server, ask()).status_code == 200
    server.faults = Faults(hang_next=1)
    answers: list[httpx.Response] = []
    waiting = threading.Thread(target=lambda: answers.append(post(server, ask())))
    waiting.start()
    eventually(lambda: server.faults.hang_next == 0)
    assert not answers
    server.release()
    waiting.join(PATIENCE)
    assert answers[0].status_code == 200
    assert (server.served.requests, server.abandoned) == (2, 1)
    assert [exchange.status for exchange in server.exchanges] == [0, 200, 200]


def test_faults_can_be_set_for_so_many_requests_on(server: PlantedServer) -> None:
    server.change_after(2, Faults(fail_next=1))
    assert [post(server, ask()).status_code for _ in range(4)] == [200, 200, 503, 200]
    server.change_after(1, Faults(fail_next=9))
    server.faults = Faults(refuse_next=1)
    assert [post(server, ask()).status_code for _ in range(3)] == [429, 200, 200]


def test_latency_is_waited_for(server: PlantedServer) -> None:
    server.faults = Faults(latency_s=PATIENCE)
    with pytest.raises(httpx.ReadTimeout):
        post(server, ask(), read=0.1)
    server.faults = Faults(latency_s=0.001)
    assert post(server, ask()).status_code == 200


def test_an_answer_can_break_off_and_is_then_not_served(server: PlantedServer) -> None:
    server.faults = Faults(cut_next=1)
    with pytest.raises(httpx.RemoteProtocolError):
        post(server, ask())
    assert (server.cut, server.served.requests) == (1, 0)
    assert post(server, ask()).status_code == 200
    assert (server.cut, server.served.requests) == (1, 1)


def test_it_dies_and_comes_back_on_the_same_port(server: PlantedServer) -> None:
    server.faults = Faults(hang_next=1)
    errors: list[Exception] = []

    def caught_in_the_middle() -> None:
        try:
            post(server, ask())
        except httpx.TransportError as error:
            errors.append(error)

    waiting = threading.Thread(target=caught_in_the_middle)
    waiting.start()
    eventually(lambda: server.faults.hang_next == 0)
    server.stop()
    server.stop()
    waiting.join(PATIENCE)
    assert len(errors) == 1
    assert server.abandoned == 1
    with pytest.raises(httpx.ConnectError):
        post(server, ask())
    port = int(server.base_url.split(":")[2].split("/")[0])
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", port))
    server.start()
    server.start()
    assert post(server, ask()).status_code == 200
    assert server.served.requests == 1


def test_closing_ends_the_thread_and_frees_the_port() -> None:
    server = PlantedServer()
    named = [thread for thread in threading.enumerate() if thread.name == "planted-judge"]
    assert len(named) == 1
    server.close()
    server.close()
    assert not named[0].is_alive()
    with pytest.raises(httpx.ConnectError):
        post(server, ask())


def test_what_the_service_does_not_take_is_refused() -> None:
    with PlantedServer(service=Service(model="m", api_key="k", context_tokens=60)) as server:
        key = {"authorization": "Bearer k"}
        assert post(server, ask()).status_code == 401
        assert post(server, {**ask(), "model": "n"}, **key).status_code == 404
        assert post(server, ask(), **key).status_code == 200
        long = post(server, ask(qualities=(0.1,) * 20), **key)
        assert (long.status_code, long.json()["error"]["code"]) == (400, "context_length_exceeded")
        assert post(server, ask(stream=True), **key).status_code == 400
        assert post(server, ["no", "object"], **key).status_code == 400
        assert httpx.get(f"{server.base_url}/nothing").status_code == 404
        assert server.refused == {401: 1, 404: 2, 400: 3}


def test_a_prompt_without_attempts_and_a_reader_that_raises_are_told_to_the_client(
    server: PlantedServer,
) -> None:
    hello = post(server, {"model": "m", "messages": [{"role": "user", "content": "Hello"}]})
    assert (hello.status_code, "no attempt" in hello.text) == (400, True)
    server.judge = Planted(quality=lambda text: 1 / 0)
    raised = post(server, ask())
    assert (raised.status_code, "ZeroDivisionError" in raised.text) == (500, True)


def test_a_reply_longer_than_its_limit_is_cut(server: PlantedServer) -> None:
    whole = content(post(server, ask()))
    for name in ("max_tokens", "max_completion_tokens"):
        cut = post(server, ask(**{name: 10})).json()
        assert cut["choices"][0]["message"]["content"] == whole[:40]
        assert cut["choices"][0]["finish_reason"] == "length"
        assert cut["usage"]["completion_tokens"] == 10
    assert post(server, ask(max_tokens=1000)).json()["choices"][0]["finish_reason"] == "stop"


def test_cached_tokens_are_those_of_whole_blocks_seen_before() -> None:
    def long(quality: float) -> dict[str, Any]:
        request = ask(qualities=(quality, 0.7))
        return {**request, "messages": [{"role": "system", "content": "r" * 700}, *request["messages"]]}

    with PlantedServer(service=Service(prompt_cache=True)) as server:
        used = [post(server, long(quality)).json()["usage"] for quality in (0.1, 0.2, 0.2)]
        cached = [each["prompt_tokens_details"]["cached_tokens"] for each in used]
        whole = (701 + len(ask(qualities=(0.2, 0.7))["messages"][0]["content"])) // 256
        assert cached == [0, 2 * 256 // 4, whole * 256 // 4]
        assert whole > 2
        assert server.served.cached_tokens == sum(cached)


def test_usage_can_be_left_out_and_tokens_counted_otherwise() -> None:
    with PlantedServer(service=Service(usage=False, count_tokens=len)) as server:
        response = post(server, ask())
        assert response.json()["usage"] is None
        assert server.served.completion_tokens == len(content(response))


def test_only_so_many_exchanges_are_kept() -> None:
    with PlantedServer(service=Service(kept=3)) as server:
        for seed in range(5):
            post(server, ask(seed))
        assert [body["seed"] for body in server.requests] == [2, 3, 4]
        assert [exchange.reply.scores["2"] for exchange in server.exchanges] == [0.7] * 3


def talk(server: PlantedServer, *pieces: bytes, replies: int = 1) -> bytes:
    """Send pieces over one connection; what comes back until so many answers or its end."""
    port = int(server.base_url.split(":")[2].split("/")[0])
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
        got = b""
        for piece in pieces:
            connection.sendall(piece)
        while got.count(b"HTTP/1.1 ") < replies or not got.endswith(b"}"):
            more = connection.recv(65536)
            if not more:
                break
            got += more
        return got


def test_requests_may_come_in_pieces_and_several_on_a_connection(server: PlantedServer) -> None:
    body = json.dumps(ask()).encode()
    one = b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    got = talk(server, one[:20], one[20:90], one[90:] + one, replies=2)
    assert got.count(b"HTTP/1.1 200 OK") == 2
    assert server.served.requests == 2


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\ncontent-length: x\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n", 411),
        (b"POST / HTTP/1.1\r\ncontent-length: 99999999999\r\n\r\n", 413),
        (b"POST / HTTP/1.1\r\nx: " + b"y" * 70_000, 431),
    ],
)
def test_what_is_not_a_plain_request_is_refused(server: PlantedServer, head: bytes, status: int) -> None:
    assert talk(server, head).startswith(b"HTTP/1.1 %d " % status)


def test_a_negative_fault_is_refused() -> None:
    with pytest.raises(InputError, match="latency_s"):
        Faults(latency_s=-1)

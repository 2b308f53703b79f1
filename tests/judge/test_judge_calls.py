"""The judge against scripted servers: dead, slow, refusing, talking rubbish, then good."""

import asyncio
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import openai
import pytest

from strop.errors import ConfigError, Unreachable
from strop.judge import Failure, Judge, JudgeSettings, Verdict, apply
from strop.judge.client import _wait
from strop.trajectory.model import Group, Trajectory

SETTINGS = JudgeSettings(
    base_url="http://judge.test/v1",
    api_key="k",
    model="m",
    timeout_s=5,
    backoff=0,
    price_in=2.0,
    price_out=10.0,
)
QUALITY = {"good": 0.9, "bad": 0.1, "fair": 0.5}
Script = Callable[["Server", dict[str, Any]], httpx.Response]


class Server:
    """Speaks the OpenAI protocol in process; each call takes the next script, the last one for ever."""

    def __init__(self, *scripts: Script) -> None:
        self.scripts = scripts
        self.requests: list[dict[str, Any]] = []
        self.urls: list[str] = []

    async def handle(self, request: httpx.Request) -> httpx.Response:
        self.urls.append(str(request.url))
        self.requests.append(json.loads(request.content))
        script = self.scripts[min(len(self.requests), len(self.scripts)) - 1]
        answer = script(self, self.requests[-1])
        return await answer if asyncio.iscoroutine(answer) else answer


def completion(content: str | None, finish: str = "stop", **message: Any) -> httpx.Response:
    choice = {
        "index": 0,
        "finish_reason": finish,
        "message": {"role": "assistant", "content": content, **message},
    }
    usage = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
    body = {
        "id": "c",
        "object": "chat.completion",
        "created": 0,
        "model": "m",
        "choices": [choice],
        "usage": usage,
    }
    return httpx.Response(200, json=body)


def honest(_: Server, request: dict[str, Any]) -> httpx.Response:
    """Scores each attempt by the one word it ends with, listing the highest first."""
    user = request["messages"][1]["content"]
    nonce = re.findall(r"scores_(\w+)", user)[-1]
    found = re.findall(r"<attempt (\d+) \w+>\n.*?(\w+)\n</attempt", user, re.DOTALL)
    items = [{"trajectory_id": i, "explanation": word, "score": QUALITY[word]} for i, word in found]
    return completion(json.dumps({f"scores_{nonce}": sorted(items, key=lambda item: -item["score"])}))


def says(content: str | None, finish: str = "stop", **message: Any) -> Script:
    return lambda _, __: completion(content, finish, **message)


def status(code: int, text: str = "no", **headers: str) -> Script:
    return lambda _, __: httpx.Response(code, json={"error": {"message": text}}, headers=headers)


def dead(_: Server, __: dict[str, Any]) -> httpx.Response:
    raise httpx.ConnectError("connection refused")


def hangs(_: Server, __: dict[str, Any]) -> Any:
    async def forever() -> None:
        await asyncio.sleep(3600)

    return forever()


def group(*words: str) -> Group:
    trajectories = [
        Trajectory(
            trajectory_id=f"t{i}", scenario_id="s", group_id="g", metadata={"i": i},
            messages=({"role": "user", "content": "task"}, {"role": "assistant", "content": word}),
        )
        for i, word in enumerate(words)
    ]  # fmt: skip
    return Group(group_id="g", scenario_id="s", trajectories=trajectories, metadata={"kept": True})


def run(
    server: Server,
    groups: Sequence[Group],
    settings: JudgeSettings = SETTINGS,
    session_url: str | None = None,
) -> tuple[list[Verdict], Judge]:
    async def judging() -> tuple[list[Verdict], Judge]:
        transport = httpx.AsyncClient(transport=httpx.MockTransport(server.handle))
        client = openai.AsyncOpenAI(base_url=settings.base_url, api_key="k", http_client=transport)
        judge = Judge(settings, client=client)
        rngs = [np.random.default_rng(i) for i in range(len(groups))]
        calls = [judge(g, rng=rng, session_url=session_url) for g, rng in zip(groups, rngs, strict=True)]
        verdicts = await asyncio.gather(*calls)
        await judge.close()
        return list(verdicts), judge

    return asyncio.run(judging())


def one(server: Server, judged: Group, settings: JudgeSettings = SETTINGS) -> Verdict:
    return run(server, [judged], settings)[0][0]


@pytest.mark.parametrize("seed", range(5))
def test_scores_land_on_their_trajectories_in_any_order(seed: int) -> None:
    words = ["good", "bad", "fair"]
    shuffled = [words[i] for i in np.random.default_rng(seed).permutation(3)]
    verdict = one(Server(honest), group(*shuffled))
    assert verdict.scores == {f"t{i}": QUALITY[word] for i, word in enumerate(shuffled)}
    assert verdict.explanations == {f"t{i}": word for i, word in enumerate(shuffled)}
    assert (verdict.cost.calls, verdict.cost.tokens_in, verdict.cost.tokens_out) == (1, 100, 20)
    assert verdict.cost.money == pytest.approx(100 * 2e-6 + 20 * 10e-6)


def test_the_request_carries_the_settings() -> None:
    server = Server(honest)
    run(server, [group("good", "bad")], replace(SETTINGS, seed=7, max_tokens=99), "http://judge.test/s/1/v1")
    assert server.urls == ["http://judge.test/s/1/v1/chat/completions"]
    sent = server.requests[0]
    assert (sent["model"], sent["temperature"], sent["seed"], sent["max_tokens"]) == ("m", 0.0, 7, 99)


def test_identical_attempts_are_shown_once_and_share_a_score() -> None:
    server = Server(honest)
    verdict = one(server, group("bad", "good", "bad", "good", "bad"))
    assert server.requests[0]["messages"][1]["content"].count("<attempt ") == 2
    assert verdict.scores == {"t0": 0.1, "t1": 0.9, "t2": 0.1, "t3": 0.9, "t4": 0.1}


@pytest.mark.parametrize(("words", "flag"), [(["bad"] * 3, "identical"), (["good"], "single")])
def test_nothing_to_compare_takes_no_call(words: list[str], flag: str) -> None:
    server = Server(honest)
    verdict = one(server, group(*words))
    assert not server.requests
    assert verdict.failure is None
    assert set((verdict.scores or {}).values()) == {0.5}
    assert verdict.flags == (flag,)


def test_what_was_unscored_before_is_not_judged() -> None:
    whole = group("good", "bad", "fair")
    lost = replace(whole.trajectories[1], unscored="agent raised")
    whole = replace(whole, trajectories=(whole.trajectories[0], lost, whole.trajectories[2]))
    verdict = one(Server(honest), whole)
    assert verdict.scores == {"t0": 0.9, "t2": 0.5}
    assert [(t.score, t.unscored) for t in apply(whole, verdict).trajectories] == [
        (0.9, None), (None, "agent raised"), (0.5, None),
    ]  # fmt: skip


def test_a_bad_reply_is_asked_again_with_its_defect_named() -> None:
    def one_missing(server: Server, request: dict[str, Any]) -> httpx.Response:
        content = honest(server, request).json()["choices"][0]["message"]["content"]
        return completion(re.sub(r", \{[^{}]*\}\]", "]", content))

    server = Server(one_missing, honest)
    verdict = one(server, group("good", "bad", "fair"))
    assert verdict.scores == {"t0": 0.9, "t1": 0.1, "t2": 0.5}
    assert "reasked" in verdict.flags
    assert [reply.failure for reply in verdict.replies] == [Failure.MISSING_IDS, None]
    assert (verdict.cost.calls, verdict.cost.tokens_in) == (2, 200)
    again = server.requests[1]["messages"]
    assert [message["role"] for message in again] == ["system", "user", "assistant", "user"]
    assert "these ids are missing" in again[3]["content"]


@pytest.mark.parametrize(
    ("script", "failure", "calls"),
    [
        (says("no idea"), "no_json", 2),
        (says(""), "empty", 2),
        (says(None), "empty", 2),
        (says("I'm sorry, I can't judge that."), "refusal", 2),
        (says(None, refusal="I will not."), "refusal", 2),
        (says('{"scores_', "length"), "truncated", 2),
        (dead, "transport", 1),
        (status(500), "transport", 1),
        (status(429), "transport", 1),
        (status(400, "maximum context length is 2048 tokens"), "too_long", 1),
        (status(422, "bad field"), "transport", 1),
        (lambda _, __: httpx.Response(200, text="<html>proxy</html>"), "transport", 1),
        (lambda _, __: httpx.Response(200, json={"hello": 1}), "transport", 1),
        (
            lambda _, __: httpx.Response(200, content=b"{", headers={"content-type": "application/json"}),
            "transport",
            1,
        ),
    ],
)
def test_a_judge_that_fails_leaves_the_group_unscored(script: Script, failure: str, calls: int) -> None:
    server, whole = Server(script), group("good", "bad")
    [verdict], judge = run(server, [whole])
    assert (verdict.scores, verdict.failure, len(server.requests)) == (None, failure, calls)
    assert judge.ledger.totals()["outcomes"] == {failure: 1}
    assert judge.ledger.cost == verdict.cost
    assert verdict.cost.calls == calls
    judged = apply(whole, verdict)
    assert [(t.score, t.unscored) for t in judged.trajectories] == [(None, failure)] * 2


def test_a_cut_reply_gets_twice_the_tokens() -> None:
    server = Server(says("{", "length"), honest)
    assert one(server, group("good", "bad")).scores == {"t0": 0.9, "t1": 0.1}
    assert [request["max_tokens"] for request in server.requests] == [1024, 2048]


def test_a_server_that_never_answers_is_a_timeout() -> None:
    verdict = one(Server(hangs), group("good", "bad"), replace(SETTINGS, timeout_s=0.05))
    assert (verdict.failure, verdict.cost.unmetered, len(verdict.replies)) == (Failure.TIMEOUT, 1, 1)


@pytest.mark.parametrize(("code", "words"), [(401, "api_key"), (403, "api_key"), (404, "judge.model")])
def test_a_wrong_key_or_model_stops_with_one_line(code: int, words: str) -> None:
    with pytest.raises(Unreachable, match=words) as raised:
        one(Server(status(code)), group("good", "bad"))
    assert "\n" not in str(raised.value)
    assert raised.value.exit_code == 3


def test_overload_is_waited_out_and_not_paid_twice() -> None:
    server = Server(status(429, **{"retry-after": "0"}), status(503, **{"retry-after": "0"}), honest)
    verdict = one(server, group("good", "bad"), replace(SETTINGS, backoff=2))
    assert verdict.scores == {"t0": 0.9, "t1": 0.1}
    assert (verdict.cost.calls, len(server.requests)) == (1, 3)


def test_waits_follow_the_server_and_else_double() -> None:
    def error(**headers: str) -> openai.APIStatusError:
        response = httpx.Response(429, headers=headers, request=httpx.Request("POST", "http://judge.test"))
        return openai.APIStatusError("slow down", response=response, body=None)

    assert [_wait(error(), repeat) for repeat in range(3)] == [0.5, 1.0, 2.0]
    assert _wait(error(**{"retry-after": "7.5"}), 0) == 7.5
    assert _wait(error(**{"retry-after": "9999"}), 0) == 60.0
    assert _wait(error(**{"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}), 1) == 1.0


def test_calls_at_once_stay_under_the_limit() -> None:
    now, most = 0, 0

    def slow(server: Server, request: dict[str, Any]) -> Any:
        async def answer() -> httpx.Response:
            nonlocal now, most
            now += 1
            most = max(most, now)
            await asyncio.sleep(0.002)
            now -= 1
            return honest(server, request)

        return answer()

    verdicts, judge = run(Server(slow), [group("good", "bad")] * 12, replace(SETTINGS, concurrency=3))
    assert most == 3
    assert all(verdict.scores for verdict in verdicts)
    assert judge.ledger.totals()["calls"] == 12


def test_ceilings_stop_before_the_next_call() -> None:
    server = Server(honest)
    verdicts, _ = run(server, [group("good", "bad")] * 5, replace(SETTINGS, max_calls=2))
    assert [v.failure for v in verdicts].count(Failure.OVER_BUDGET) == 3
    assert len(server.requests) == 2
    cheap = Server(honest)
    limits = replace(SETTINGS, max_money=0.0005, concurrency=1)  # a call costs 0.0004
    verdicts, judge = run(cheap, [group("good", "bad")] * 5, limits)
    assert len(cheap.requests) == 2
    assert judge.ledger.cost.money == pytest.approx(0.0008)


def test_too_much_text_is_never_sent() -> None:
    server = Server(honest)
    verdict = one(server, group("good", "bad" * 100), replace(SETTINGS, max_prompt_chars=200))
    assert (verdict.failure, server.requests) == (Failure.TOO_LONG, [])


def test_unknown_prices_say_unknown() -> None:
    verdict = one(Server(honest), group("good", "bad"), replace(SETTINGS, price_in=None))
    assert verdict.cost.money is None
    assert verdict.cost.tokens_in == 100


def test_failures_in_a_row_are_counted() -> None:
    settings = replace(SETTINGS, concurrency=1, attempts=1)
    _, judge = run(Server(honest, says("x"), says("x")), [group("good", "bad")] * 3, settings)
    assert judge.ledger.failures_in_a_row == 2
    assert judge.ledger.totals()["attempts"] == {"no_json": 2, "ok": 1}


def test_a_cached_judgement_is_free_and_equal(tmp_path: Path) -> None:
    settings = replace(SETTINGS, cache=tmp_path)
    first = one(Server(honest), group("good", "bad", "fair"), settings)
    silent = Server(dead)
    again = one(silent, group("good", "bad", "fair"), settings)
    assert again.scores == first.scores
    assert not silent.requests
    assert (again.cost.calls, again.flags) == (0, ("cached",))
    assert one(silent, group("good", "bad", "bad bad"), settings).failure == Failure.TRANSPORT
    assert (
        one(silent, group("good", "bad", "fair"), replace(settings, model="n")).failure == Failure.TRANSPORT
    )


def test_a_failure_or_a_broken_file_is_no_cache_hit(tmp_path: Path) -> None:
    settings = replace(SETTINGS, cache=tmp_path)
    one(Server(says("no")), group("good", "bad"), settings)
    assert not list(tmp_path.rglob("*.json"))
    one(Server(honest), group("good", "bad"), settings)
    [kept] = tmp_path.rglob("*.json")
    kept.write_text("{")
    server = Server(honest)
    assert one(server, group("good", "bad"), settings).scores == {"t0": 0.9, "t1": 0.1}
    assert len(server.requests) == 1


def test_wrong_settings_name_the_key() -> None:
    with pytest.raises(ConfigError, match=r"judge\.concurrency"):
        replace(SETTINGS, concurrency=0)
    with pytest.raises(ConfigError, match=r"judge\.timeout_s"):
        replace(SETTINGS, timeout_s=0)
    with pytest.raises(ConfigError, match=r"judge\.max_money"):
        replace(SETTINGS, price_out=None, max_money=1.0)

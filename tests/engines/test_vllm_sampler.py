"""The client side of vLLM against answers of vLLM 0.32.0 for a tiny random model: recorded/vllm_0_32.json."""

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from strop.engines.vllm.availability import Availability
from strop.engines.vllm.checks import tempered
from strop.engines.vllm.completion import joined, request, sampled
from strop.engines.vllm.control import Control
from strop.engines.vllm.roster import Roster, Version
from strop.engines.vllm.sampler import VllmSampler
from strop.errors import EngineError, InputError, ServerLost
from strop.inference.sampling import Sampled, SamplingParams
from strop.inference.server import serve

RECORDED = json.loads((Path(__file__).parent / "recorded/vllm_0_32.json").read_text(encoding="utf-8"))
PROMPT = [1, 3, 9, 4]
VERSION = Version(name="policy@1", remote="policy@1", version=1, folder=None)


def read(name: str, top: int = 0) -> Sampled:
    return sampled(RECORDED[name]["body"], "policy@1", "policy@1", 1, top)


def test_ids_log_probs_and_version_are_those_of_the_answer() -> None:
    found = read("plain")
    assert found.ids == (45, 31, 61)
    assert found.logprobs == pytest.approx((-2.0667779, -2.7792616, -3.6650748))
    assert (found.finish_reason, found.version, found.model, found.top) == ("length", 1, "policy@1", ())


def test_the_most_likely_tokens_are_in_order_whatever_was_sampled() -> None:
    first, second = read("top", 3).top
    assert [token for token, _ in first] == [45, 3, 8]
    assert [token for token, _ in second] == [22, 31, 57]
    assert [len(top) for top in read("top", 1).top] == [1, 1]
    assert read("top", 1).top[1][0][0] == 22


def test_tokens_that_were_cut_away_are_not_listed() -> None:
    assert read("cut", 3).top == (((45, 0.0),), ((22, 0.0),))
    assert read("cut", 3).logprobs == (0.0, 0.0)


def test_greedy_log_probs_are_of_the_whole_distribution() -> None:
    assert read("greedy").logprobs[0] == read("plain").logprobs[0]


def test_what_made_up_a_stop_string_is_kept() -> None:
    found = read("stop_string")
    assert found.ids == (45, 22, 57, 33)
    assert found.finish_reason == "stop"


def test_log_probs_before_and_after_temperature_are_told_apart() -> None:
    """The recorded answers at 0.7 and at 1: log p at 0.7 is log p / 0.7 less a constant."""
    plain, warm = dict(read("greedy", 2).top[0]), dict(read("top", 3).top[0])
    assert tempered(plain, warm, 0.7)
    assert not tempered(plain, plain, 0.7)
    assert not tempered({1: -0.1}, {1: -0.1}, 0.7)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model": "base"}, "answered as 'base', not as 'policy@1'"),
        ({"choices": []}, "lacks token ids or log-probs"),
        ({"choices": [{"token_ids": None, "logprobs": None, "finish_reason": "stop"}]}, "lacks token ids"),
    ],
)
def test_an_answer_that_cannot_be_right_is_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(EngineError, match=said):
        sampled({**RECORDED["plain"]["body"], **change}, "policy@1", "policy@1", 1, 0)


def test_ids_and_log_probs_that_disagree_are_refused() -> None:
    answer = json.loads(json.dumps(RECORDED["plain"]["body"]))
    answer["choices"][0]["token_ids"] = [45, 31]
    with pytest.raises(EngineError, match="do not agree"):
        sampled(answer, "policy@1", "policy@1", 1, 0)


def test_nothing_is_left_to_the_servers_defaults() -> None:
    body = request(
        "policy@1", PROMPT, SamplingParams(temperature=0.0, top_p=0.5, seed=2**63), frozenset({7, 2}), 9
    )
    assert body["max_tokens"] == 9
    assert (body["top_p"], body["top_k"], body["min_p"], body["repetition_penalty"]) == (1.0, 0, 0.0, 1.0)
    assert (body["stop_token_ids"], body["seed"], body["prompt"]) == ([2, 7], 0, PROMPT)


def chunks() -> list[dict[str, Any]]:
    lines = [line.removeprefix("data: ") for line in RECORDED["stream"]["lines"]]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def test_a_stream_is_the_answer_in_pieces() -> None:
    assert sampled(joined(chunks(), "policy@1"), "policy@1", "policy@1", 1, 0) == read("plain")


def test_a_stream_that_breaks_or_changes_its_model_is_refused() -> None:
    with pytest.raises(EngineError, match="as 2 models in one stream"):
        joined([*chunks(), {**chunks()[0], "model": "base"}], "policy@1")
    with pytest.raises(ServerLost, match="EngineCore"):
        joined([chunks()[0], {"error": {"message": "EngineCore died"}}], "policy@1")
    unfinished = sampled(joined(chunks()[:1], "policy@1"), "policy@1", "policy@1", 1, 0)
    assert unfinished.finish_reason == "abort"


class Desk:
    """A server that gives recorded answers by the order in which they are put down, and a sampler on it."""

    def __init__(self, slots: int = 64) -> None:
        self.answers: list[str] = []
        self.asked: list[dict[str, Any]] = []
        self.gone = asyncio.Event()
        self.forgotten: list[str] = []
        self.doubts = 0
        routes = [Route("/v1/{path:path}", self._answer, methods=["POST"])]
        self.server = serve(Starlette(routes=routes))
        self.roster, self.availability = Roster(), Availability(self._doubted)
        self.roster.add(VERSION)
        self.roster.route("policy", "policy@1")
        self.availability.up()
        self.sampler = VllmSampler(
            self.roster,
            self.availability,
            lambda: self.server.url,
            forgotten=self.forgotten.append,
            eos_ids=frozenset({2}),
            max_length=64,
            slots=slots,
        )

    def ask(self, on_token: Callable[[int, float], None] | None = None, **params: Any) -> Sampled:
        asked = SamplingParams(**{"max_tokens": 3, **params})
        return asyncio.run(self.sampler.sample(PROMPT, asked, model="policy", on_token=on_token))

    def _doubted(self) -> None:
        self.doubts += 1

    async def _answer(self, http: Request) -> Response:
        self.asked.append(await http.json())
        name = self.answers.pop(0)
        if name == "never":
            while not await http.is_disconnected():
                await asyncio.sleep(0.01)
            self.answers.append("was cut off")
            return Response()
        if name == "stream":
            return Response("\n\n".join(RECORDED["stream"]["lines"]), media_type="text/event-stream")
        if name == "broken":
            return Response("EngineDeadError", status_code=500)
        return JSONResponse(RECORDED[name]["body"], RECORDED[name]["status"])


@pytest.fixture
def desk() -> Iterator[Desk]:
    made = Desk()
    yield made
    made.sampler.close()
    made.server.close()


def test_a_request_goes_to_the_version_and_its_answer_comes_back(desk: Desk) -> None:
    desk.answers = ["plain"]
    assert desk.ask() == read("plain")
    assert desk.asked[0]["model"] == "policy@1"
    assert desk.asked[0]["prompt"] == PROMPT
    assert desk.sampler.answered == 1
    assert VERSION.in_flight == 0


def test_tokens_are_told_as_they_come(desk: Desk) -> None:
    desk.answers = ["stream"]
    told: list[tuple[int, float]] = []
    found = desk.ask(on_token=lambda token, logprob: told.append((token, logprob)))
    assert found == read("plain")
    assert told == list(zip(found.ids, found.logprobs, strict=True))
    assert desk.asked[0]["stream"] is True


@pytest.mark.parametrize(
    ("answer", "kind", "said"),
    [
        ("too_hot", InputError, "refused the request: 400 .*temperature must be non-negative"),
        ("unknown", ServerLost, "no longer knows policy@1"),
        ("broken", ServerLost, "failed while it answered: 500 EngineDeadError"),
    ],
)
def test_refusals_have_their_kind(desk: Desk, answer: str, kind: type[Exception], said: str) -> None:
    desk.answers = [answer]
    with pytest.raises(kind, match=said):
        desk.ask()
    assert bool(desk.forgotten) == (answer == "unknown")
    assert desk.doubts == (answer == "broken")
    assert VERSION.in_flight == 0


def test_after_a_loss_nothing_is_asked_until_it_is_seen_to_be_up(desk: Desk) -> None:
    desk.answers = ["broken", "plain"]
    with pytest.raises(ServerLost):
        desk.ask()
    with pytest.raises(ServerLost, match="cannot be asked now: it answered 500"):
        desk.ask()
    assert len(desk.asked) == 1
    desk.availability.up()
    assert desk.ask() == read("plain")


def test_a_cancelled_request_is_ended_at_the_server(desk: Desk) -> None:
    desk.answers = ["never"]

    async def give_up() -> None:
        asking = asyncio.ensure_future(desk.sampler.sample(PROMPT, SamplingParams(), model="policy"))
        while not desk.asked:
            await asyncio.sleep(0.01)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        while desk.answers != ["was cut off"]:
            await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(give_up(), 60))
    assert VERSION.in_flight == 0


def test_a_session_waits_while_others_have_all_places() -> None:
    desk = Desk(slots=1)
    desk.answers = ["plain"]
    desk.sampler.open(["first", "second"])
    asyncio.run(desk.sampler.sample(PROMPT, SamplingParams(max_tokens=3), model="policy", session="first"))
    assert [desk.sampler.waits(name) for name in ("first", "second")] == [False, True]
    desk.sampler.shut("first")
    assert not desk.sampler.waits("second")
    desk.sampler.close()
    desk.server.close()


def test_what_cannot_be_answered_is_not_asked(desk: Desk) -> None:
    for prompt, params in (([], {}), ([1] * 64, {}), (PROMPT, {"max_tokens": 0})):
        with pytest.raises(InputError):
            asyncio.run(desk.sampler.sample(prompt, SamplingParams(**params), model="policy"))
    assert desk.asked == []


def test_loads_and_unloads_are_read_as_vllm_answers_them(desk: Desk) -> None:
    control, url = Control(), desk.server.url
    desk.answers = ["load_empty", "load", "load_again", "load_bad", "unload", "unload_again"]
    assert control.takes_adapters(url)
    control.load(url, "policy@1", "folder")
    with pytest.raises(
        EngineError, match="policy@1: 400: The lora adapter 'policy@1' has already been loaded"
    ):
        control.load(url, "policy@1", "folder")
    with pytest.raises(EngineError, match="policy@2: 404: Loading lora policy@2 failed: No adapter found"):
        control.load(url, "policy@2", "folder")
    control.unload(url, "policy@1")
    control.unload(url, "policy@1")
    control.close()
    assert desk.asked[1] == {"lora_name": "policy@1", "lora_path": "folder"}

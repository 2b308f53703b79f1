"""A guard in the gateway: what passes, what waits, what is answered when nobody approves."""

import asyncio
import json

import httpx
import pytest
from gateway_bench import KEY

from strop.inference.approvals import KEPT, Approvals
from strop.inference.guarding import Assessment, Guarding

HELLO = [{"role": "user", "content": "hello"}]
REFUND = 'Sure. <tool_call>{"name": "refund", "arguments": {"order": "A1"}}</tool_call>'
LOOKUP = '<tool_call>{"name": "lookup", "arguments": {"order": "A1"}}</tool_call>'
NAMES = {"name": "refund", "parameters": {"type": "object", "properties": {"order": {"type": "string"}}}}
TOOLS = [{"type": "function", "function": NAMES}]
NOTICE = "Sure.\n[Held: refund was not approved in time. It is low. Nothing was done.]"


class Given:
    """Says the same of every refund."""

    def __init__(self, low):
        self.low = low
        self.turns = []

    async def assess(self, turn, reply):
        names = [call["function"]["name"] for call in reply.get("tool_calls") or ()]
        if "refund" not in names:
            return None
        self.turns.append(turn)
        return Assessment(tools=("refund",), grade=-2.0, threshold=-1.0, low=self.low, reason="It is low")


def guarded(made, low=True, **options):
    approvals = Approvals("boss")
    made.gateway.guard(Guarding(guard=Given(low), approvals=approvals, **options))
    return approvals


async def ask(client, messages=HELLO, **options):
    reply = await client.chat.completions.create(model="scripted", messages=messages, tools=TOOLS, **options)
    return reply.choices[0]


def web(made, key="boss"):
    return httpx.AsyncClient(
        transport=httpx.ASGITransport(app=made.gateway.app),
        base_url="http://gateway",
        headers={"authorization": f"Bearer {key}"},
    )


def test_what_can_be_undone_is_not_looked_at(bench, run):
    made = bench(LOOKUP)
    guarded(made)
    choice = run(ask(made.client()))
    assert choice.message.tool_calls[0].function.name == "lookup"
    assert "strop_guard" not in choice.model_extra


def test_without_a_guard_there_are_no_approvals(bench, run):
    async def get():
        async with web(bench("hi")) as client:
            return await client.get("/v1/approvals")

    assert run(get()).status_code == 404


@pytest.mark.parametrize(("low", "action", "status"), [(False, "hold", "passed"), (True, "mark", "marked")])
def test_a_call_that_passes_carries_its_grade(bench, run, low, action, status):
    made = bench(REFUND)
    guarded(made, low, action=action)
    choice = run(ask(made.client()))
    assert choice.message.tool_calls[0].function.name == "refund"
    assert choice.finish_reason == "tool_calls"
    said = choice.model_extra["strop_guard"]
    assert (said["status"], said["grade"], said["threshold"]) == (status, -2.0, -1.0)


def test_a_low_call_that_nobody_approves_stays_held_and_says_so(bench, run):
    made = bench(REFUND)
    approvals = guarded(made, timeout_s=0.0)
    choice = run(ask(made.client()))
    assert choice.message.tool_calls is None
    assert choice.message.content == NOTICE
    assert choice.finish_reason == "stop"
    assert choice.model_extra["strop_guard"]["status"] == "timed out"
    (case,) = approvals.cases()
    assert case["status"] == "timed out"
    assert case["message"]["tool_calls"][0]["function"]["name"] == "refund"


def test_in_a_stream_too(bench, run):
    async def stream(client):
        events = await client.chat.completions.create(
            model="scripted", messages=HELLO, tools=TOOLS, stream=True
        )
        return [chunk.choices[0] async for chunk in events]

    made = bench(REFUND)
    guarded(made, timeout_s=0.0)
    choices = run(stream(made.client()))
    assert "".join(c.delta.content or "" for c in choices) == NOTICE
    assert not any(c.delta.tool_calls for c in choices)
    assert choices[-1].finish_reason == "stop"
    assert choices[-1].model_extra["strop_guard"]["status"] == "timed out"


async def answered(made, approve):
    """Ask, and answer the approval once it waits; the choice and the answers to answering twice."""
    async with web(made) as client:
        asking = asyncio.ensure_future(ask(made.client()))
        while not (cases := (await client.get("/v1/approvals")).json()["data"]):
            await asyncio.sleep(0.001)
        url = f"/v1/approvals/{cases[0]['id']}"
        first = await client.post(url, json={"approve": approve})
        again = await client.post(url, json={"approve": True})
        return await asking, cases[0], first, again


def test_an_approved_call_goes_out(bench, run):
    made = bench(REFUND)
    guarded(made)
    choice, case, first, again = run(answered(made, True))
    assert case["status"] == "waiting"
    assert choice.message.tool_calls[0].function.arguments == '{"order": "A1"}'
    assert choice.model_extra["strop_guard"]["status"] == "approved"
    assert first.json()["status"] == "approved"
    assert (again.status_code, again.json()["error"]["code"]) == (409, "not_waiting")


def test_a_refused_call_is_held(bench, run):
    made = bench(REFUND)
    guarded(made)
    choice, *_ = run(answered(made, False))
    assert choice.message.tool_calls is None
    assert "refund was refused" in choice.message.content


def test_an_agents_key_approves_nothing(bench, run):
    made = bench(REFUND)
    guarded(made)

    async def get():
        async with web(made, KEY) as client:
            return await client.get("/v1/approvals"), await client.post("/v1/approvals/x", json={})

    assert [answer.status_code for answer in run(get())] == [401, 401]


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("x", {"approve": True}, 404),
        ("known", {"approve": "yes"}, 400),
        ("known", {}, 400),
        ("known", [], 400),
    ],
)
def test_wrong_answers(bench, run, path, body, status):
    made = bench(REFUND)
    approvals = guarded(made, timeout_s=0.0)

    async def post():
        await ask(made.client())
        name = approvals.cases()[0]["id"] if path == "known" else path
        async with web(made) as client:
            return await client.post(f"/v1/approvals/{name}", json=body)

    assert run(post()).status_code == status


def test_a_client_that_goes_leaves_no_waiting_case(bench, run):
    made = bench(REFUND)
    approvals = guarded(made, timeout_s=30.0)

    async def leave():
        asking = asyncio.ensure_future(ask(made.session()))
        while not approvals.cases():
            await asyncio.sleep(0.001)
        made.gateway.take("s")
        with pytest.raises(Exception, match="session ended"):
            await asking

    run(leave())
    assert [case["status"] for case in approvals.cases()] == ["client gone"]


def test_after_a_hold_the_model_is_shown_what_it_is_told(bench, run):
    """The held call was sampled and recorded, but the conversation that goes on does not hold it."""
    made = bench(REFUND, "done")
    guarded(made, timeout_s=0.0)

    async def talk():
        client = made.session()
        held = (await ask(client)).message
        history = [*HELLO, {"role": "assistant", "content": held.content}, *HELLO]
        await ask(client, history)

    run(talk())
    first, second = made.gateway.take("s")
    assert first.held
    assert not second.held
    assert first.reply["content"] == NOTICE
    sampled = first.turn.prompt_ids + first.turn.sampled_ids
    assert second.turn.prompt_ids[: len(sampled)] != sampled
    shown = made.sampler._tokenizer.decode(second.turn.prompt_ids)
    assert "Held: refund" in shown
    assert REFUND not in shown


def test_old_cases_are_forgotten_and_waiting_ones_are_not(run):
    async def many():
        approvals = Approvals("boss")
        first, _ = approvals.ask({"status": "waiting"})
        for _ in range(KEPT + 5):
            name, _ = approvals.ask({"status": "waiting"})
            approvals.end(name, "denied")
        return first, approvals.cases()

    first, cases = run(many())
    assert cases[0]["id"] == first
    assert len(cases) <= KEPT + 2
    assert json.dumps(cases[0])

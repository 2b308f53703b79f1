"""What a session records: tokens extended and never made again, forks, sub-agents, many at once."""

import asyncio
import json

import openai
import pytest

from strop.errors import InputError
from strop.seeds import derive
from strop.trajectory.tokens import rows

HELLO = [{"role": "user", "content": "hello"}]
CALL = '<tool_call>{"name": "lookup", "arguments": {"order":  "A1", "deep": {"b": 1, "a": 2}}}</tool_call>'


async def say(client, messages, **options):
    reply = await client.chat.completions.create(model="scripted", messages=messages, **options)
    return reply.choices[0].message


async def tool_loop(client, tools, spell=lambda message: message):
    """An agent that calls a tool, answers it, and asks for the end."""
    messages = list(HELLO)
    first = await say(client, messages, tools=tools)
    messages += [
        spell(first.model_dump()),
        {"role": "tool", "tool_call_id": first.tool_calls[0].id, "content": "shipped"},
    ]
    await say(client, messages, tools=tools)
    return first


def test_a_recorded_call_holds_what_was_asked_answered_and_sampled(bench, run):
    made = bench("hi", version=7)
    run(say(made.session(), HELLO, temperature=0.5))
    (call,) = made.gateway.take("s")
    assert call.messages == tuple(HELLO)
    assert call.reply == {"role": "assistant", "content": "hi"}
    assert (call.index, call.choice, call.problem, call.tools) == (0, 0, None, ())
    turn = call.turn
    assert turn.prompt_ids == made.sampler.asked[0][0]
    assert turn.sampled_ids == (104 + 2, 105 + 2, 1)  # bytes of "hi" after two control tokens, then the end
    assert turn.logprobs == (-0.5,) * 3
    assert (turn.finish_reason, turn.policy_version) == ("stop", 7)
    assert (turn.temperature, turn.message_index) == (0.5, 1)


def drop_null_content(message):
    return {key: value for key, value in message.items() if value is not None}


def respell_arguments(message):
    (call,) = message["tool_calls"]
    arguments = json.dumps(json.loads(call["function"]["arguments"]), indent=2, sort_keys=True)
    return {**message, "tool_calls": [{**call, "function": {**call["function"], "arguments": arguments}}]}


def rename_call(message):
    (call,) = message["tool_calls"]
    return {**message, "content": "", "name": "agent", "tool_calls": [{**call, "id": "call_mine"}]}


@pytest.mark.parametrize("spell", [lambda m: m, drop_null_content, respell_arguments, rename_call])
def test_next_prompt_extends_what_was_sampled_however_the_agent_spells_it(bench, run, lookup, spell):
    made = bench(CALL, "done")
    run(tool_loop(made.session(), [lookup], spell))
    first, second = made.gateway.take("s")
    seen = first.turn.prompt_ids + first.turn.sampled_ids
    assert second.turn.prompt_ids[: len(seen)] == seen
    assert len(rows("t", [first.turn, second.turn])) == 1
    assert second.turn.message_index == 3


def test_a_changed_history_is_a_fork(bench, run, lookup):
    def other(message):
        return {**respell_arguments(message), "content": "I said something else"}

    made = bench(CALL, "done")
    run(tool_loop(made.session(), [lookup], other))
    first, second = made.gateway.take("s")
    assert len(rows("t", [first.turn, second.turn])) == 2


def test_other_tools_are_another_prompt(bench, run, lookup):
    made = bench("hi")

    async def talk():
        client = made.session()
        reply = await say(client, HELLO, tools=[lookup])
        history = [*HELLO, {"role": "assistant", "content": reply.content}, *HELLO]
        await say(client, history)

    run(talk())
    first, second = made.gateway.take("s")
    assert len(rows("t", [first.turn, second.turn])) == 2


def test_sub_agents_keep_their_own_chains(bench, run):
    made = bench(answer=lambda prompt: f"re: {prompt.splitlines()[-2]}")

    async def talk():
        client = made.session()
        threads = {name: [{"role": "user", "content": name}] for name in ("main", "sub")}
        for turn in range(3):
            for thread in threads.values():
                reply = await say(client, thread)
                thread += [
                    {"role": "assistant", "content": reply.content},
                    {"role": "user", "content": f"{turn}"},
                ]

    run(talk())
    calls = made.gateway.take("s")
    assert [call.index for call in calls] == [0, 1, 2, 3, 4, 5]
    assert len(rows("t", [call.turn for call in calls])) == 2


def test_seeds_and_ids_are_those_of_session_and_call(bench, run, lookup):
    def once():
        made = bench(CALL, "done")
        first = run(tool_loop(made.session("order/1 #2"), [lookup]))
        return first.tool_calls[0].id, [params.seed for _, params, _ in made.sampler.asked]

    call_id, seeds = once()
    assert (call_id, seeds) == once()
    assert seeds == [derive(0, "call", "order/1 #2", index) for index in (0, 1)]


def test_sixty_four_sessions_are_recorded_apart(bench, run):
    made = bench(answer=lambda prompt: f"you are {prompt.splitlines()[1]}")
    names = [f"agent {index}/x" for index in range(64)]

    async def agent(name, url):
        history = [{"role": "user", "content": name}]
        client = made.client(url)
        for _ in range(2):
            reply = await say(client, history)
            history += [{"role": "assistant", "content": reply.content}, {"role": "user", "content": "more"}]

    async def all_agents():
        urls = made.gateway.open(names)
        await asyncio.gather(*(agent(name, urls[name]) for name in names))

    run(all_agents())
    assert made.sampler.opened == [tuple(names)]
    for name in names:
        calls = made.gateway.take(name)
        assert [call.reply["content"] for call in calls] == [f"you are {name}"] * 2
        assert len(rows("t", [call.turn for call in calls])) == 1
    assert made.sampler.shut_sessions == names


def test_plain_url_is_recorded_nowhere(bench, run):
    made = bench("hi")
    made.gateway.open(["s"])
    run(say(made.client(), HELLO))
    assert made.gateway.take("s") == ()


def test_taking_a_session_ends_the_call_that_still_runs(bench, run):
    made = bench("x" * 10_000, pause_s=0.001, max_context=20_000)

    async def hang():
        call = asyncio.ensure_future(say(made.session(), HELLO))
        while not made.sampler.asked:
            await asyncio.sleep(0.001)
        assert made.gateway.take("s") == ()
        with pytest.raises(openai.ConflictError) as caught:
            await call
        assert caught.value.code == "session_ended"

    run(hang())
    assert made.sampler.cancelled == 1


def test_who_waits_is_what_the_sampler_says(bench, monkeypatch):
    made = bench()
    monkeypatch.setattr(made.sampler, "waits", lambda session: session == "late")
    assert [made.gateway.waits(key) for key in ("late", "early")] == [True, False]


def test_session_names_are_checked(bench):
    gateway = bench("hi").gateway
    gateway.open(["a"])
    for names in (["a"], ["b", "b"], [""]):
        with pytest.raises(InputError):
            gateway.open(names)
    gateway.take("a")
    with pytest.raises(InputError, match="not open"):
        gateway.take("a")


def test_a_session_may_fix_the_temperature(bench, run):
    """Whatever its agent asks for, greedy sessions are greedy; others are as they ask."""
    made = bench("hi")
    for name, fixed, expected in (("greedy", 0.0, 0.0), ("free", None, 0.7), ("warm", 1.5, 1.5)):
        url = made.gateway.open([name], fixed)[name]
        asked = {"model": "scripted", "messages": HELLO, "temperature": 0.7}
        run(made.client(url).chat.completions.create(**asked))
        (call,) = made.gateway.take(name)
        assert call.turn.temperature == expected

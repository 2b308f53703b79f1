"""Demonstrations as rows: what they teach, and that the gateway would have recorded the same."""

import asyncio
from collections.abc import Sequence
from typing import Any

import httpx
import openai
import pytest

from strop.demo.clerk import Habits, demonstrate
from strop.demo.desk import TOOLS
from strop.demo.orders import STATUSES, scenario
from strop.errors import InputError
from strop.inference.chat import Chat
from strop.inference.gateway import Gateway
from strop.inference.scripted import ByteTokenizer, ScriptedSampler
from strop.seeds import generator
from strop.training.demonstrations import as_turns, demonstration_rows, rendered_turns
from strop.trajectory.model import Message, Trajectory
from strop.trajectory.tokens import Row

END = 1
CONVERSATION: list[Message] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Hello."},
    {"role": "user", "content": "Bye"},
    {"role": "assistant", "content": "Bye."},
]
# Keeps reasoning in the last reply only, so that the second prompt does not extend the first turn.
THINKER = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{{ m.content if loop.last else m.content.split('</think>')[-1] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def chat(template: str | None = None) -> Chat:
    tokenizer = ByteTokenizer()
    if template is not None:
        tokenizer.chat_template = template
    return Chat(tokenizer)


def learned(row: Row) -> list[str]:
    """The trained stretches as text, the end-of-turn token shown as |."""
    spans: list[str] = []
    before = False
    for token, trained in zip(row.ids.tolist(), row.mask.tolist(), strict=True):
        if trained and not before:
            spans.append("")
        if trained:
            spans[-1] += "|" if token == END else ByteTokenizer().decode([token])
        before = trained
    return spans


def test_replies_and_their_ends_are_learned_and_nothing_else() -> None:
    (row,) = demonstration_rows("d", CONVERSATION, (), chat())
    assert learned(row) == ["Hello.|", "Bye.|"]
    assert chat().tokenizer.decode(row.ids.tolist()) == (
        "system\nBe brief.\nuser\nHi\nassistant\nHello.\nuser\nBye\nassistant\nBye."
    )
    assert row.logprobs.tolist() == [0.0] * len(row.ids)
    assert row.trajectory_id == "d"


@pytest.mark.parametrize(
    ("learn", "expected"), [([2], ["Hello.|"]), ([4], ["Bye.|"]), ([2, 4, 99], ["Hello.|", "Bye.|"])]
)
def test_learn_names_messages(learn: Sequence[int], expected: list[str]) -> None:
    """The ids stay; only the mask changes."""
    (whole,) = demonstration_rows("d", CONVERSATION, (), chat())
    (row,) = demonstration_rows("d", CONVERSATION, (), chat(), learn)
    assert learned(row) == expected
    assert row.ids.tolist() == whole.ids.tolist()
    assert not (row.mask & ~whole.mask).any()


@pytest.mark.parametrize(
    ("messages", "learn"),
    [(CONVERSATION, [0, 1, 3]), (CONVERSATION, []), (CONVERSATION[:2], None)],
)
def test_t13_nothing_to_learn_is_refused(messages: list[Message], learn: list[int] | None) -> None:
    with pytest.raises(InputError, match="demonstration d: no assistant message to learn from"):
        demonstration_rows("d", messages, (), chat(), learn)


def test_a_template_that_strips_reasoning_gives_two_rows_with_each_token_once() -> None:
    messages: list[Message] = [
        {"role": "user", "content": "Q"},
        {"role": "assistant", "content": "<think>R</think>A"},
        {"role": "user", "content": "P"},
        {"role": "assistant", "content": "B"},
    ]
    rows = demonstration_rows("d", messages, (), chat(THINKER))
    assert [learned(row) for row in rows] == [["<think>R</think>A|"], ["B|"]]
    first, second = demonstration_rows("d", messages, (), chat(THINKER), learn=[3])
    assert (learned(first), learned(second)) == ([], ["B|"])


def test_control_tokens_spelled_in_a_reply_stay_text() -> None:
    messages: list[Message] = [
        {"role": "user", "content": "Q<|im_end|>"},
        {"role": "assistant", "content": "<|im_start|>"},
    ]
    (row,) = demonstration_rows("d", messages, (), chat())
    assert learned(row) == ["<|im_start|>|"]
    assert row.ids.tolist().count(0) == 2
    assert row.ids.tolist().count(END) == 2


def test_a_chat_log_gets_turns_and_a_recorded_attempt_keeps_its_own() -> None:
    log = Trajectory(trajectory_id="t", scenario_id="s", group_id="g", messages=tuple(CONVERSATION))
    made = as_turns(log, chat())
    assert [turn.message_index for turn in made.turns] == [2, 4]
    assert as_turns(made, chat(THINKER)).turns == made.turns


async def recorded(messages: Sequence[Message], tools: Sequence[Any], made: Chat) -> list[tuple[Any, Any]]:
    """(prompt ids, sampled ids) of each call that a gateway records when a model replies as demonstrated."""
    places = [index for index, message in enumerate(messages) if message["role"] == "assistant"]
    texts = [made.written(messages[: index + 1], tools) for index in places]
    sampler = ScriptedSampler(made.tokenizer, lambda _prompt: texts.pop(0))
    gateway = Gateway(sampler, made, api_key=None, max_context=100_000)
    gateway.root = "http://gateway"
    url = gateway.open(["s"])["s"]
    transport = httpx.AsyncClient(transport=httpx.ASGITransport(app=gateway.app))
    client = openai.AsyncOpenAI(base_url=url, api_key="x", http_client=transport, max_retries=0)
    history: list[Any] = []
    for message in messages:
        if message["role"] != "assistant":
            history.append(
                {**message, "tool_call_id": _last_call(history)} if message["role"] == "tool" else message
            )
            continue
        asked: dict[str, Any] = {"model": "scripted", "messages": history, "max_tokens": 4000}
        completion = await client.chat.completions.create(**asked, **({"tools": tools} if tools else {}))
        history.append(completion.choices[0].message.model_dump(exclude_none=True))
    await client.close()
    return [(call.turn.prompt_ids, call.turn.sampled_ids) for call in gateway.take("s")]


def _last_call(history: list[Any]) -> str:
    return str(history[-1]["tool_calls"][0]["id"])


@pytest.mark.parametrize("index", range(6))
def test_the_gateway_would_have_recorded_the_same_ids(index: int) -> None:
    """Six clerks with every habit, tools written in words, as the shipped adapters were taught."""
    habits = Habits(right_by_status=dict.fromkeys(STATUSES, 0.6), policy=0.5, blind=0.5, silent=0.1)
    shown = demonstrate(scenario("warmstart", index), habits, generator(index, "demonstration"))
    turns = rendered_turns(shown.messages, TOOLS, chat())
    assert [(turn.prompt_ids, turn.sampled_ids) for turn in turns] == asyncio.run(
        recorded(shown.messages, list(TOOLS), chat())
    )
    assert len(demonstration_rows("d", shown.messages, TOOLS, chat())) == 1


def test_the_gateway_would_have_recorded_the_same_ids_where_reasoning_is_stripped() -> None:
    messages: list[Message] = [
        {"role": "user", "content": "Q"},
        {"role": "assistant", "content": "<think>R</think>A"},
        {"role": "user", "content": "P"},
        {"role": "assistant", "content": "B"},
    ]
    turns = rendered_turns(messages, (), chat(THINKER))
    assert [(turn.prompt_ids, turn.sampled_ids) for turn in turns] == asyncio.run(
        recorded(messages, [], chat(THINKER))
    )

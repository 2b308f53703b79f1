"""Which tokens a warm start learns, held against the model's own template and transformers' own masks."""

import itertools
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strop.errors import InputError
from strop.inference.chat import Chat
from strop.inference.scripted import ByteTokenizer
from strop.training.lessons import Demonstration, demonstration, read_demonstrations, split
from strop.training.loss_weights import loss_weights, shown
from strop.trajectory import codec
from strop.trajectory.model import Trajectory

WORDS = st.text("abcxyz .", min_size=1, max_size=6).map(str.strip).filter(bool)
CALL = {"id": "1", "type": "function", "function": {"name": "look", "arguments": '{"id": 7}'}}
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]

# As ChatML models write it; transformers itself says which tokens are the assistant's.
MARKED = (
    "{% for m in messages %}{% if m.role == 'assistant' %}{{ '<s>assistant: ' }}"
    "{% generation %}{{ m.content + '</s>' }}{% endgeneration %}"
    "{% else %}{{ '<s>' + m.role + ': ' + m.content + '</s>' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<s>assistant: ' }}{% endif %}"
)


def said(*messages: dict[str, Any], **fields: Any) -> Trajectory:
    return codec.from_dict({"messages": list(messages), **fields}, where="here:1", line=1)


def user(text: str, **fields: Any) -> dict[str, Any]:
    return {"role": "user", "content": text, **fields}


def reply(text: str, **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **fields}


def weight_of_tokens(made: Demonstration) -> np.ndarray[Any, Any]:
    """The loss weight of each token of a demonstration whose rows all have the same ids."""
    assert all(row.ids.tolist() == made.rows[0].ids.tolist() for row in made.rows)
    masks = np.array([row.mask for row in made.rows])
    assert masks.sum(axis=0).max() == 1
    return np.asarray(np.array(made.weights) @ masks)


@pytest.mark.parametrize(
    ("messages", "learn", "expected"),
    [
        ([user("a"), reply("b"), user("c"), reply("d")], "all", {1: 1.0, 3: 1.0}),
        ([user("a"), reply("b"), user("c"), reply("d"), user("e")], "last", {3: 1.0}),
        ([user("a"), reply("b", train=False), user("c"), reply("d")], "all", {3: 1.0}),
        ([user("a"), reply("b", train=True), user("c"), reply("d")], "last", {1: 1.0, 3: 1.0}),
        ([user("a"), reply("b", weight=0), user("c"), reply("d", weight=2.5)], "all", {3: 2.5}),
        ([user("a", weight=0), reply("b", weight=1)], "last", {1: 1.0}),
        ([user("a", train=False), reply("b", train=None)], "all", {1: 1.0}),
        ([user("a")], "all", {}),
    ],
)
def test_a_message_says_what_it_counts_and_the_option_the_rest(
    messages: list[Any], learn: Any, expected: dict[int, float]
) -> None:
    assert loss_weights(messages, learn) == expected


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        (user("a", train=True), r"messages\[0\] is of role user; only the assistant's are learned"),
        (reply("a", train=True, weight=1), "has both train and weight"),
        (reply("a", train="no"), "train is 'no'; give true or false"),
        (reply("a", weight=-1), "weight is -1; give a number from 0"),
        (reply("a", weight=True), "weight is True"),
    ],
)
def test_a_wrong_field_is_one_line_with_its_place(message: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        loss_weights([message])


def test_fields_of_ours_never_reach_a_template_and_arguments_become_text() -> None:
    call = {**CALL, "function": {"name": "look", "arguments": {"id": 7}}}
    (message,) = shown([reply("", weight=1, train=None, tool_calls=[call])])
    assert message == reply("", tool_calls=[CALL])
    for broken in ({"tool_calls": {"a": 1}}, {"tool_calls": ["look"]}, {"tool_calls": [{"function": {}}]}):
        with pytest.raises(InputError, match=r"messages\[0\]"):
            shown([reply("", **broken)])


@pytest.fixture(scope="module")
def letters(tiny_model: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(tiny_model)


@settings(max_examples=40)
@given(st.lists(st.tuples(WORDS, WORDS, st.sampled_from([None, 0, 1, 2])), min_size=1, max_size=4))
def test_masks_are_those_of_the_rendered_text(tiny_model: Path, letters: Any, turns: list[Any]) -> None:
    """Brute force: render all at once by transformers, find the assistant's spans, count letters."""
    from strop.engines.local.tokenizer import HFTokenizer

    messages = [{"role": "system", "content": "be"}]
    for asked, answered, weight in turns:
        own = {} if weight is None else {"weight": weight}
        messages += [user(asked), reply(answered, **own)]
    plain = [{"role": m["role"], "content": m["content"]} for m in messages]
    text = letters.apply_chat_template(plain, tokenize=False)
    ids = letters.apply_chat_template(plain, tokenize=True, return_dict=True)["input_ids"]
    tokens = re.findall(r"</?s>|.", text, re.DOTALL)
    expected = np.zeros(len(tokens))
    start = -1
    replies = iter(messages[2::2])
    for place, token in enumerate(tokens):
        if "".join(tokens[place - 11 : place]) == "assistant: " and tokens[place - 12] == "<s>":
            start, weight = place, float(next(replies).get("weight", 1))
        if start >= 0:
            expected[place] = weight
        if token == "</s>":
            start = -1
    made = demonstration(said(*messages), Chat(HFTokenizer.load(tiny_model)))
    if not expected.any():
        assert made is None
        return
    assert made is not None
    assert made.rows[0].ids.tolist() == ids
    assert weight_of_tokens(made).tolist() == expected.tolist()


def test_masks_are_those_of_transformers_where_the_template_marks_them(
    tiny_model: Path, letters: Any
) -> None:
    from strop.engines.local.tokenizer import HFTokenizer

    messages = [user("ab"), reply("cde"), user("f"), reply("gh"), user("i"), reply("j")]
    tokenizer = HFTokenizer.load(tiny_model)
    tokenizer.chat_template = MARKED
    theirs = letters.apply_chat_template(
        messages, chat_template=MARKED, return_assistant_tokens_mask=True, return_dict=True
    )
    made = demonstration(said(*messages), Chat(tokenizer))
    assert made is not None
    (row,) = made.rows
    assert row.ids.tolist() == theirs["input_ids"]
    assert row.mask.astype(int).tolist() == theirs["assistant_masks"]
    assert made.tokens == sum(theirs["assistant_masks"]) == 9


def test_tools_are_shown_by_the_template_and_not_learned() -> None:
    """A call is learned as the model must write it, its result is not."""
    messages = [user("q"), reply("", tool_calls=[CALL]), {"role": "tool", "content": "seven"}, reply("7")]
    made = demonstration(said(*messages, tools=TOOLS), Chat(ByteTokenizer()))
    assert made is not None
    (row,) = made.rows
    decode = ByteTokenizer().decode
    learned = decode(row.ids[row.mask].tolist())
    assert learned == '<tool_call>{"name": "look", "arguments": {"id": 7}}</tool_call>7'
    assert "look" in decode(row.ids[: row.mask.argmax()].tolist())
    assert "seven" in decode(row.ids.tolist())


def test_what_cannot_be_learned_is_counted_never_cut(tiny_model: Path) -> None:
    """<s>user: a</s> is 9 tokens, <s>assistant: is 12, bcdef</s> is 6; one letter more is too long."""
    from strop.engines.local.tokenizer import HFTokenizer

    chat = Chat(HFTokenizer.load(tiny_model))
    fits, over = said(user("a"), reply("bcdef")), said(user("aa"), reply("bcdef"))
    length = len(demonstration(fits, chat).rows[0].ids)  # type: ignore[union-attr]
    assert length == 9 + 12 + 6
    files = [
        fits,
        over,
        said(user("a")),
        said(user("a"), reply("b", train=False)),
        said(user("a"), reply("b"), failure="deadline"),
    ]
    kept, dropped = read_demonstrations(files, chat, learn="all", max_length=length)
    assert [each.trajectory_id for each in kept] == [fits.trajectory_id]
    assert dropped == {"too_long": 1, "nothing_to_learn": 2, "failed": 1}
    assert kept[0].tokens == 6


def test_an_error_names_the_demonstration() -> None:
    with pytest.raises(InputError, match=r"demonstration d7: messages\[1\]: weight is 'x'"):
        demonstration(said(user("a"), reply("b", weight="x"), trajectory_id="d7"), Chat(ByteTokenizer()))


def demonstrations(*scenarios: str) -> list[Demonstration]:
    chat = Chat(ByteTokenizer())
    made = [demonstration(said(user("a"), reply("b"), scenario_id=s), chat) for s in scenarios]
    return [each for each in made if each is not None]


def test_whole_scenarios_are_held_out() -> None:
    every = demonstrations(*(f"s{i % 10}" for i in range(40)))
    learned, heldout = split(every, 0.3, seed=5)
    assert len(learned) + len(heldout) == 40
    out = {each.scenario_id for each in heldout}
    assert len(out) == 3
    assert out & {each.scenario_id for each in learned} == set()
    assert split(every, 0.3, seed=5) == (learned, heldout)
    chosen = {tuple(sorted({d.scenario_id for d in split(every, 0.3, seed)[1]})) for seed in range(8)}
    assert len(chosen) > 1


@pytest.mark.parametrize(
    ("scenarios", "share", "expected"), [(3, 0.5, 0), (4, 0.01, 2), (10, 0.0, 0), (10, 0.9, 9)]
)
def test_how_many_are_held_out(scenarios: int, share: float, expected: int) -> None:
    assert len(split(demonstrations(*map(str, range(scenarios))), share, 0)[1]) == expected


def test_weights_make_rows_that_share_all_tokens() -> None:
    messages = [user("a"), reply("b", weight=3), user("c"), reply("d"), user("e"), reply("f", weight=3)]
    made = demonstration(said(*messages), Chat(ByteTokenizer()))
    assert made is not None
    assert list(made.weights) == [3.0, 1.0]
    assert [int(row.mask.sum()) for row in made.rows] == [4, 2]
    for one, other in itertools.pairwise(made.rows):
        assert not (one.mask & other.mask).any()

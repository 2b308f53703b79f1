"""A group as the judge sees it: the whitelist, the prefix, duplicates, volatile text, images, budgets."""

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strop.errors import ConfigError, InputError
from strop.judge.prompt import present
from strop.judge.sheet import IMAGE_TOKENS, Sheet, make_sheet
from strop.judge.transcript import IMAGE, render_message
from strop.judge.view import View
from strop.trajectory.model import Trajectory, Turn

DATA = Path(os.environ.get("STROP_DATA", Path(__file__).parents[2].parent / "shared" / "data"))
TAU = DATA / "tau_bench" / "gpt-4o-airline.json"
SEE = View(images="pass")


def attempt(name: str, *messages: Mapping[str, Any]) -> Trajectory:
    return Trajectory(trajectory_id=name, scenario_id="s", group_id="g", messages=messages)


def said(text: object, role: str = "assistant") -> dict[str, Any]:
    return {"role": role, "content": text}


def call(name: str, arguments: object, call_id: str = "c") -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": call_id, "type": "function", "function": function}],
    }


def result(text: str, call_id: str = "c") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def picture(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


def shape(sheet: Sheet) -> list[tuple[tuple[str, ...], str]]:
    return [(entry.ids, entry.body) for entry in sheet.entries]


# ---- what is shown of a message


def test_reasoning_is_shown_only_where_the_view_says_so() -> None:
    parts = [
        {"type": "thinking", "thinking": "hm"},
        {"type": "reasoning", "text": "so"},
        {"type": "text", "text": "4"},
    ]
    message = {**said(parts), "reasoning_content": "I add.\nThen stop.", "reasoning": "I add.\nThen stop."}
    assert render_message(message) == "assistant: 4"
    assert render_message(message, View(reasoning=True)) == (
        "reasoning: I add.\n  Then stop.\nreasoning: hm\nreasoning: so\nassistant: 4"
    )
    silent = {**call("f", "{}"), "reasoning": "<b>"}
    assert render_message(silent, View(reasoning=True)) == "reasoning: &lt;b>\ncall f {}"


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (
            {"role": "assistant", "tool_calls": [{"name": "flat", "arguments": {"a": 1}}]},
            'call flat {"a": 1}',
        ),
        (
            {"role": "assistant", "tool_calls": [{"custom": {"name": "sql", "input": "select"}}]},
            "call sql select",
        ),
        ({"role": "assistant", "function_call": {"name": "old", "arguments": "{}"}}, "call old {}"),
        ({"role": "assistant", "tool_calls": "broken", "content": "x"}, "assistant: x"),
        ({"role": "assistant", "tool_calls": [None, {"function": {}}]}, "call unnamed"),
        (said({"a": "<"}, "user"), 'user: {"a": "&lt;"}'),
        (said([{"type": "input_audio", "input_audio": {"data": "secret"}}], "user"), "user: [input_audio]"),
        (said("x", "result"), "result_: x"),
        (said("x", 'call refund {"id": 1}'), 'call_refund_{"id":_1}: x'),
        (said("x", "user\nresult paid"), "user_result_paid: x"),
        (said("x", "<cut 9 characters>"), "&lt;cut_9_characters>: x"),
        (call("f\n  g {}", "{}"), "call f_g_{} {}"),
        (call("n" * 100, "{}"), f"call {'n' * 64}… {{}}"),
        (call("f", {(1, 2): 3}), "call f {(1, 2): 3}"),
    ],
)
def test_odd_messages(message: dict[str, Any], text: str) -> None:
    assert render_message(message) == text


def test_other_keys_never_reach_the_sheet() -> None:
    turn = Turn(prompt_ids=(1,), sampled_ids=(2,), logprobs=(-0.125,), finish_reason="stop", message_index=0)
    hidden = {
        "logprobs": {"content": [-0.25]},
        "name": "hush",
        "id": "hush",
        "refusal": "hush",
        "audio": "hush",
    }
    held = {**hidden, "reasoning": "hush"}
    group = [
        replace(
            attempt(name, {**said(name), **held}, {**result("r", "hush"), "name": "hush"}),
            truth=1.0, metadata={"m": "hush"}, metrics={"hush": 7.0}, turns=(turn,), tools=({"t": "hush"},),
        )
        for name in "ab"
    ]  # fmt: skip
    sheet = make_sheet(group)
    assert [entry.body for entry in sheet.entries] == ["assistant: a\nresult r", "assistant: b\nresult r"]
    assert sheet.context == ""


# ---- prefix, duplicates, order


def test_the_prefix_is_the_longest_that_all_share() -> None:
    group = [
        attempt("x", said("hi", "user"), call("f", "{}", "c1"), result("r", "c1"), said("no")),
        attempt("y", said("hi", "user"), call("f", "{ }", "c2"), result("r", "c2"), said("yes")),
        attempt("z", said("hi", "user"), call("f", "{}", "c3")),
    ]
    sheet = make_sheet(group)
    assert sheet.context == "user: hi\ncall f {}"
    assert shape(sheet) == [
        (("z",), "(no further message)"),
        (("x",), "result r\nassistant: no"),
        (("y",), "result r\nassistant: yes"),
    ]


def test_identical_attempts_are_one_entry_unless_told_otherwise() -> None:
    group = [attempt(name, said("q", "user"), said(text)) for name, text in zip("dabc", "nyny", strict=True)]
    assert shape(make_sheet(group)) == [(("b", "d"), "assistant: n"), (("a", "c"), "assistant: y")]
    assert [ids for ids, _ in shape(make_sheet(group, merge=False))] == [("b",), ("d",), ("a",), ("c",)]


def test_one_entry_has_the_task_for_its_context() -> None:
    group = [
        attempt(name, said("be just", "system"), said("q", "user"), said("a"), said("r", "user"))
        for name in "ab"
    ]
    for several in (group, group[:1]):
        sheet = make_sheet(several)
        assert sheet.context == "system: be just\nuser: q"
        assert [entry.body for entry in sheet.entries] == ["assistant: a\nuser: r"]


messages_drawn = st.lists(
    st.one_of(
        st.builds(said, st.text("ab<\n", max_size=4), st.sampled_from(["user", "assistant"])),
        st.builds(call, st.sampled_from("fg"), st.text("{}a", max_size=3)),
        st.builds(result, st.text("ab\n", max_size=600)),
    ),
    max_size=6,
)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(messages_drawn, min_size=1, max_size=6),
    st.randoms(use_true_random=False),
    st.booleans(),
    st.sampled_from([View(), View(volatile=("a+",)), View(attempt_tokens=334, group_tokens=1567)]),
)
def test_relabelling_and_reordering_permute_ids_and_change_nothing_else(
    group: list[list[dict[str, Any]]], random: Any, merge: bool, view: View
) -> None:
    old = [attempt(f"t{number}", *messages) for number, messages in enumerate(group)]
    new_names = [f"n{number}" for number in range(len(group))]
    random.shuffle(new_names)
    new = [replace(t, trajectory_id=name) for t, name in zip(old, new_names, strict=True)]
    random.shuffle(new)
    one, other = make_sheet(old, view, merge=merge), make_sheet(new, view, merge=merge)
    assert one.digest == other.digest
    assert one.context == other.context
    assert [entry.body for entry in one.entries] == [entry.body for entry in other.entries]
    renamed = {f"t{number}": name for number, name in enumerate(new_names)}
    if merge:
        assert [{renamed[i] for i in e.ids} for e in one.entries] == [set(e.ids) for e in other.entries]
        assert {renamed[name]: share for name, share in one.cut.items()} == other.cut
    order = list(range(len(one.entries)))
    random.shuffle(order)
    prompts = [present(sheet, order, "r", np.random.default_rng(5)) for sheet in (one, other)]
    assert prompts[0].messages == prompts[1].messages


def test_the_digest_follows_all_that_is_shown() -> None:
    def digest(*bodies: str, context: str = "c", view: View = SEE) -> str:
        group = [attempt(body, said(context, "user"), said([body, picture(f"u{body}")])) for body in bodies]
        return make_sheet(group, view).digest

    assert digest("a", "b") == digest("b", "a")
    assert (
        len(
            {digest("a", "b"), digest("a", "c"), digest("a", "b", context="d"), digest("a", "b", view=View())}
        )
        == 4
    )


# ---- volatile text


def test_volatile_text_defeats_neither_prefix_nor_merging_and_is_shown() -> None:
    def run(name: str, clock: str, end: str) -> Trajectory:
        return attempt(
            name,
            said(f"It is {clock}. Pay order 7.", "user"),
            call("pay", json.dumps({"at": clock, "order": 7})),
            result(f"paid <{clock}>"),
            said(end),
        )

    group = [run("a", "09:15", "ok"), run("b", "08:30", "ok"), run("c", "10:00", "bad")]
    assert make_sheet(group).context == ""
    assert len(make_sheet(group).entries) == 3
    sheet = make_sheet(group, View(volatile=(r"<?\d\d:\d\d>?",)))
    assert [ids for ids, _ in shape(sheet)] == [("c",), ("b", "a")]
    assert sheet.context == (
        'user: It is 10:00. Pay order 7.\ncall pay {"at": "10:00", "order": 7}\nresult paid &lt;10:00>'
    )
    assert len(make_sheet(group, View(volatile=("never",))).entries) == 3


def test_volatile_text_does_not_make_other_text_equal() -> None:
    group = [attempt("a", said("at 12:00")), attempt("b", said("at ")), attempt("c", said("at noon"))]
    assert len(make_sheet(group, View(volatile=(r"\d\d:\d\d",))).entries) == 3


# ---- repeated results


def test_a_long_result_that_came_back_twice_is_written_once() -> None:
    flights, seats = '{"flights": "' + "f" * 300 + '"}', "<" + "s" * 300
    group = [
        attempt("a", said("q", "user"), call("f", "{}"), result(flights), result(seats)),
        attempt("b", said("q", "user"), result(seats), result("short"), result(flights), said("x")),
        attempt("c", said("q", "user"), said("l" * 300), result("o" * 300), result("short")),
    ]
    sheet = make_sheet(group)
    assert shape(sheet) == [
        (("c",), "assistant: " + "l" * 300 + "\nresult " + "o" * 300 + "\nresult short"),
        (("a",), "call f {}\nresult <R1>\nresult <R2>"),
        (("b",), "result <R2>\nresult short\nresult <R1>\nassistant: x"),
    ]
    assert sheet.context == f"user: q\n<R1> {flights}\n<R2> &lt;{seats[1:]}"
    full = make_sheet(group, View(repeats="full"))
    assert full.context == "user: q"
    assert f"result {flights}" in full.entries[1].body
    assert sheet.cut == {}


def test_a_prompt_defines_the_names_that_it_uses_and_says_what_they_are() -> None:
    one, two = "1" * 300, "2" * 300
    group = [
        attempt("a", result(one), result(one)),
        attempt("b", result(two), result(two)),
        attempt("c", said("x")),
    ]
    sheet = make_sheet(group)
    assert [ids for ids, _ in shape(sheet)] == [("c",), ("a",), ("b",)]
    shown = {place: present(sheet, [place], "r", np.random.default_rng(0)) for place in range(3)}
    assert [shown[place].context for place in range(3)] == ["", f"<R1> {one}", f"<R2> {two}"]
    said_so = [
        "stands for the result of that name" in shown[place].messages[1]["content"] for place in range(3)
    ]
    assert said_so == [False, True, True]
    assert sheet.tokens([0]) < sheet.tokens([1]) < sheet.tokens([1, 2])


def test_repeats_are_named_only_as_far_as_there_is_room() -> None:
    group = [attempt(name, result("1" * 1400), result("2" * 1400), said(name)) for name in "ab"]
    others = [replace(t, messages=(said(t.trajectory_id), *t.messages)) for t in group]
    sheet = make_sheet(others, View(group_tokens=1567))  # 2000 bytes for what is shared
    assert sheet.context == "<R1> " + "1" * 1400
    assert set(sheet.cut) == {"a", "b"}


# ---- images


def test_images_are_passed_on_where_they_stood() -> None:
    see = [
        {"type": "text", "text": "see <this>"},
        {**picture("https://p/1"), "secret": 1},
        {"type": "text", "text": "!"},
    ]
    group = [
        attempt("a", said(see, "user"), said("cat")),
        attempt("b", said(see, "user"), said([{"type": "input_image", "image_url": "https://p/2"}, IMAGE])),
    ]
    sheet = make_sheet(group, SEE)
    assert sheet.context == "user: see &lt;this>\n  <image>\n  !"
    prompt = present(sheet, [0, 1], "r", np.random.default_rng(0))
    nonce = prompt.nonce
    assert prompt.messages[1]["content"] == [
        {"type": "text", "text": f"<context {nonce}>\nuser: see &lt;this>\n  "},
        {"type": "image_url", "image_url": {"url": "https://p/1"}},
        {"type": "text", "text": (
            f"\n  !\n</context {nonce}>\n<attempt 1 {nonce}>\nassistant: "
        )},
        {"type": "image_url", "image_url": {"url": "https://p/2"}},
        {"type": "text", "text": (
            f"\n  &lt;image>\n</attempt {nonce}>\n<attempt 2 {nonce}>\nassistant: cat\n</attempt {nonce}>\n"
            "Reply in one line of JSON, each attempt once:\n"
            f'{{"scores_{nonce}": [{{"trajectory_id": "1", "explanation": "why", "score": 0.5}}, ...]}}'
        )},
    ]  # fmt: skip
    text = make_sheet(group)
    assert text.context == "user: see &lt;this>\n  [image_url]\n  !"
    assert isinstance(present(text, [0, 1], "r", np.random.default_rng(0)).messages[1]["content"], str)


def test_attempts_that_differ_in_an_image_differ_only_for_a_judge_that_sees_it() -> None:
    group = [attempt(url, said([picture(url)], "user"), said("cat")) for url in ("u1", "u2")]
    assert len(make_sheet(group).entries) == 1
    assert len(make_sheet(group, SEE).entries) == 2


def test_an_image_without_an_address_is_a_placeholder() -> None:
    broken = [{"type": "image_url", "image_url": {"url": 7}}, {"type": "image_url"}]
    sheet = make_sheet([attempt("a", said(broken, "user"))], SEE)
    assert (sheet.context, sheet.context_images) == ("user: [image_url]\n  [image_url]", ())


# ---- budgets


def test_a_long_attempt_is_cut_and_the_share_is_told() -> None:
    task = said("q" * 94, "user")  # 100 characters with its introduction
    group = [attempt("long", task, said("ok"), result("r" * 9_880)), attempt("short", task, said("no"))]
    view = View(attempt_tokens=1000)
    sheet = make_sheet(group, view)
    long = next(entry for entry in sheet.entries if entry.ids == ("long",))
    assert 2950 < len(long.body) <= 3000
    removed = int(long.body.split("<cut ")[1].split()[0])
    assert sheet.cut == {"long": pytest.approx(removed / 10_000)}
    assert make_sheet(group).cut == {}
    user = present(sheet, [0, 1], "r", np.random.default_rng(0)).messages[1]["content"]
    assert user.count("marked as cut it was left out of this prompt") == 1
    places = [number for number, entry in enumerate(sheet.entries) if entry.ids == ("short",)]
    assert "marked as cut" not in present(sheet, places, "r", np.random.default_rng(0)).messages[1]["content"]


def test_the_context_is_bounded_by_half_of_a_prompt() -> None:
    group = [attempt(name, said("policy " * 5000, "system"), said(name)) for name in "ab"]
    sheet = make_sheet(group, View(group_tokens=4000))
    assert 5500 < len(sheet.context) <= 6000
    assert sheet.cut["a"] == sheet.cut["b"] == pytest.approx(1 - len(sheet.context) / 35_000, abs=0.01)


def test_merged_attempts_share_the_cut() -> None:
    group = [attempt(name, said("x" * 9000)) for name in "ab"] + [attempt("c", said("y"))]
    assert set(make_sheet(group, View(attempt_tokens=500)).cut) == {"a", "b"}


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.text("a<ä漢\n", max_size=30), min_size=1, max_size=8), min_size=2, max_size=4),
    st.integers(1, 300),
    st.sampled_from([0.7, 1.0, 3.0, 4.5]),
    st.integers(0, 3),
)
def test_prompts_of_two_attempts_always_fit(
    group: list[list[str]], times: int, bytes_per_token: float, pictures: int
) -> None:
    room = math.ceil(20_000 / bytes_per_token)
    view = View(attempt_tokens=room, group_tokens=room, bytes_per_token=bytes_per_token, images="pass")
    shared = said(["see"] + [picture("u")] * pictures + ["task " * times], "user")
    runs = [
        attempt(str(number), shared, *(said([text * times, picture("v")]) for text in texts))
        for number, texts in enumerate(group)
    ]
    sheet = make_sheet(runs, view, merge=False)
    for pair in ([0, 1], [1, 0]):
        assert sheet.tokens(pair) <= room
        prompt = present(sheet, pair, "", np.random.default_rng(1))
        content = prompt.messages[1]["content"]
        parts: Sequence[Any] = [{"type": "text", "text": content}] if isinstance(content, str) else content
        text = (
            "".join(part["text"] for part in parts if part["type"] == "text") + prompt.messages[0]["content"]
        )
        images = sum(part["type"] == "image_url" for part in parts)
        needed = len(text.encode()) / bytes_per_token + images * IMAGE_TOKENS
        assert needed <= sheet.tokens(pair) <= needed + 700 / bytes_per_token + 1


def test_the_group_is_never_changed() -> None:
    group = [attempt(name, said("q", "user"), said([{"type": "text", "text": "x" * 9000}])) for name in "ab"]
    before = json.dumps([dict(m) for t in group for m in t.messages])
    make_sheet(group, View(attempt_tokens=400, volatile=("x",)))
    assert json.dumps([dict(m) for t in group for m in t.messages]) == before


@pytest.mark.skipif(not TAU.exists(), reason=f"no data at {TAU}; set STROP_DATA to the data folder")
def test_public_runs_are_shown_whole_and_once() -> None:
    runs = [run for run in json.loads(TAU.read_text(encoding="utf-8")) if run["task_id"] < 5]
    for task in range(5):
        group = [attempt(str(run["trial"]), *run["traj"]) for run in runs if run["task_id"] == task]
        sheet = make_sheet(group)
        policy = group[0].messages[0]["content"].splitlines()
        assert sheet.context.count(policy[0]) == 1
        assert all(line in sheet.context for line in policy)
        for entry in sheet.entries:
            (mine,) = (t for t in group if t.trajectory_id == entry.ids[0])
            for message in mine.messages:
                for line in (message["content"] or "").replace("<", "&lt;").splitlines():
                    assert line.strip() in entry.body or line.strip() in sheet.context
        assert sheet.cut == {}


# ---- wrong input


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("images", "keep"),
        ("repeats", "never"),
        ("volatile", ("[0-9",)),
        ("volatile", ("ok", 7)),
        ("volatile", "one text"),
        ("bytes_per_token", 0.0),
        ("bytes_per_token", math.nan),
        ("attempt_tokens", 333),
        ("group_tokens", 1566),
    ],
)
def test_a_wrong_view_names_its_key(key: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"judge.{key} "):
        View(**{key: value})  # type: ignore[arg-type]


def test_the_least_view_is_allowed() -> None:
    assert View(attempt_tokens=334, group_tokens=1567).attempt_bytes == 1000


def test_wrong_groups_are_refused() -> None:
    with pytest.raises(InputError, match="no trajectory"):
        make_sheet([])
    with pytest.raises(InputError, match="twice"):
        make_sheet([attempt("a"), attempt("a")])

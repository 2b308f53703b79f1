"""Trajectory lines: exact round trips, made-up ids, and one line for everything that is refused."""

import hashlib
import json
import math
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strop.errors import InputError, StropError
from strop.trajectory import codec
from strop.trajectory.model import Trajectory, Turn

USER = {"role": "user", "content": "Where is my order?"}
REPLY = {"role": "assistant", "content": "On its way."}
TURN = {"prompt_ids": [1, 2], "sampled_ids": [3], "logprobs": [-0.5], "message_index": 1}

UNPROMPTED = Turn(prompt_ids=(), sampled_ids=(1,), logprobs=(0.0,), finish_reason="stop", message_index=0)


def decode(**fields: Any) -> Trajectory:
    return codec.from_dict({"messages": [USER, REPLY], **fields}, where="f.jsonl:3", line=3)


def refused(path: Path, line: str) -> str:
    path.write_text(json.dumps({"messages": [USER]}) + "\n" + line + "\n", encoding="utf-8")
    with pytest.raises(InputError) as caught:
        list(codec.read(path))
    message = str(caught.value)
    assert message.startswith(f"{path}:2: ")
    assert "\n" not in message
    return message.removeprefix(f"{path}:2: ")


def line(**fields: Any) -> str:
    return json.dumps({"messages": [USER, REPLY], **fields})


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("{", "not JSON"),
        ("hello", "not JSON"),
        ('{"messages": [{"role": "user"}]} {}', "not JSON"),
        ("[1]", "a JSON list, not an object"),
        ("3", "a JSON number, not an object"),
        ("null", "a JSON null, not an object"),
        ("[" * 100_000, "nested too deeply"),
        ("9" * 5000, "not JSON"),
        ("{}", "no messages; a line needs"),
        ('{"messages": []}', "messages is empty"),
        ('{"messages": null}', "messages is empty"),
        ('{"messages": "hi"}', "messages must be a list of objects"),
        ('{"messages": {"role": "user"}}', "messages must be a list of objects"),
        ('{"messages": ["hi"]}', "messages must be a list of objects"),
        ('{"messages": [{"content": "hi"}]}', r"messages[0] has no role"),
        ('{"messages": [{"role": null}]}', r"messages[0] has no role"),
        ('{"messages": [{"role": "user", "x": NaN}]}', "not JSON (NaN is not a number"),
        ('{"messages": [{"role": "user", "x": -Infinity}]}', "not JSON (-Infinity is not a number"),
        ('{"messages": [{"role": "user", "x": 1e999}]}', "messages[0].x is inf"),
        (line(score=0.5, unscored="timeout"), "both score and unscored"),
        (line(score=1.5), "score is 1.5; it must lie in [0, 1]"),
        (line(truth=-0.1), "truth is -0.1"),
        (line(score="0.5"), "score must be a number, not text"),
        ('{"messages": [{"role": "user"}], "score": 1e999}', "score is not finite"),
        ('{"messages": [{"role": "user"}], "truth": 1' + "0" * 400 + "}", "truth is not finite"),
        (line(metrics={"cost": "much"}), "metrics.cost must be a number"),
        (line(metrics=[1]), "metrics must be an object"),
        (line(metadata=3), "metadata must be an object"),
        (line(first_wrong_step=-1), "first_wrong_step is negative"),
        (line(first_wrong_step=1.5), "first_wrong_step must be a whole number"),
        (line(first_wrong_step=True), "first_wrong_step must be a whole number"),
        (line(trajectory_id=""), "trajectory_id is empty"),
        (line(group_id=[1]), "group_id must be text"),
        (line(unscored=3), "unscored must be text"),
        (line(tools={"a": 1}), "tools must be a list of objects"),
        (line(schema=2), "schema 2 is newer than this strop reads (1); upgrade strop"),
        (line(schema=0), "schema 0 does not exist"),
        (line(schema="1"), "schema must be a whole number"),
        (line(turns=[3]), "turns must be a list of objects"),
        (
            line(turns=[TURN, TURN | {"logprobs": [-1, -1]}]),
            "turns[1]: turn for message 1: 1 sampled ids but 2",
        ),
        (line(turns=[TURN | {"logprobs": [math.nan]}]), "not JSON (NaN is not a number"),
        (line(turns=[TURN]).replace("-0.5", "-1e999"), "turns[0]: logprobs[0] is not finite"),
        (line(turns=[TURN | {"logprobs": None}]), "turns[0]: logprobs must be a list"),
        (line(turns=[TURN | {"prompt_ids": [1.0]}]), "turns[0]: prompt_ids must be a list of whole numbers"),
        (line(turns=[TURN | {"prompt_ids": [True]}]), "turns[0]: prompt_ids must be a list of whole numbers"),
        (line(turns=[TURN | {"message_index": 2}]), "turns[0]: message_index 2, but there are 2 messages"),
        (line(turns=[TURN | {"message_index": -2}]), "turns[0]: message_index -2"),
        (line(turns=[TURN | {"message_index": None}]), "turns[0]: no message_index"),
    ],
)
def test_wrong_lines_are_refused_in_one_line_with_their_place(tmp_path: Path, text: str, what: str) -> None:
    assert refused(tmp_path / "f.jsonl", text).startswith(what)


def test_bytes_that_are_not_utf8_are_refused_with_their_line(tmp_path: Path) -> None:
    path = tmp_path / "f.jsonl"
    path.write_bytes(b'{"messages": [{"role": "user"}]}\n\xff\xfe\n')
    with pytest.raises(InputError, match=r"f\.jsonl:2: not UTF-8 \(byte 0\)"):
        list(codec.read(path))


def test_a_missing_file_and_a_directory_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "nowhere.jsonl", tmp_path):
        with pytest.raises(InputError, match="cannot be read"):
            list(codec.read(path))


def test_a_byte_order_mark_blank_lines_and_windows_line_ends_are_no_matter(tmp_path: Path) -> None:
    path = tmp_path / "f.jsonl"
    one = json.dumps({"messages": [USER]}).encode()
    path.write_bytes(b"\xef\xbb\xbf" + one + b"\r\n\r\n  \n" + one)
    assert [t.messages for t in codec.read(path)] == [(USER,), (USER,)]


def test_line_separators_of_unicode_do_not_split_a_line(tmp_path: Path) -> None:
    path = tmp_path / "f.jsonl"
    path.write_text('{"messages": [{"role": "user", "content": "a\u2028b\u0085c"}]}\n', encoding="utf-8")
    assert [t.messages[0]["content"] for t in codec.read(path)] == ["a\u2028b\u0085c"]


def test_missing_ids_come_from_line_and_content() -> None:
    made = decode()
    opening = hashlib.sha256(b'[{"content":"Where is my order?","role":"user"}]').hexdigest()
    whole = hashlib.sha256(
        b'{"messages":[{"content":"Where is my order?","role":"user"},'
        b'{"content":"On its way.","role":"assistant"}],"tools":[]}'
    ).hexdigest()
    assert made.scenario_id == made.group_id == f"s-{opening[:16]}"
    assert made.trajectory_id == f"t3-{whole[:16]}"
    assert codec.content_hash(made) == whole


def test_attempts_at_one_prompt_share_scenario_and_group_but_not_their_id(tmp_path: Path) -> None:
    path = tmp_path / "f.jsonl"
    other = {"role": "assistant", "content": "I do not know."}
    path.write_text("".join(json.dumps({"messages": [USER, m]}) + "\n" for m in (REPLY, REPLY, other)))
    read = list(codec.read(path))
    assert len({t.trajectory_id for t in read}) == 3
    assert len({(t.scenario_id, t.group_id) for t in read}) == 1
    assert list(codec.read(path)) == read


def test_given_ids_are_kept_and_the_group_follows_the_scenario() -> None:
    made = decode(trajectory_id="a", scenario_id=7)
    assert (made.trajectory_id, made.scenario_id, made.group_id) == ("a", "7", "7")


def test_fields_of_other_tools_are_kept_in_metadata() -> None:
    assert decode(model="m", metadata={"k": [1]}).metadata == {"model": "m", "k": [1]}


def test_null_is_absence_and_booleans_are_labels() -> None:
    made = decode(tools=None, turns=None, score=None, metrics=None, metadata=None, truth=True)
    assert made == decode(truth=1.0)


def test_an_attempt_that_failed_before_its_first_word_and_a_turn_of_another_branch_are_kept(
    tmp_path: Path,
) -> None:
    silent = decode(messages=[], failure="agent raised ValueError", unscored="agent raised ValueError")
    elsewhere = decode(turns=[TURN | {"message_index": -1}])
    codec.write(tmp_path / "f.jsonl", [silent, elsewhere])
    assert list(codec.read(tmp_path / "f.jsonl")) == [silent, elsewhere]
    assert (silent.messages, elsewhere.turns[0].message_index) == ((), -1)


def test_turn_defaults() -> None:
    (made,) = decode(turns=[TURN]).turns
    assert (made.finish_reason, made.policy_version, made.temperature) == ("stop", 0, 1.0)


@pytest.mark.parametrize(
    "change",
    [
        {"metrics": {"a": math.nan}},
        {"metrics": {"a": "b"}},
        {"metadata": {"a": math.inf}},
        {"metadata": {"a": object()}},
        {"metadata": {1: "a"}},
        {"score": math.nan},
        {"score": 2.0},
        {"messages": ()},
        {"score": 0.0, "unscored": "timeout"},
        {
            "turns": (
                Turn(prompt_ids=(), sampled_ids=(1,), logprobs=(0.0,), finish_reason="", message_index=0),
            )
        },
    ],
)
def test_what_could_not_be_read_back_is_not_written_and_the_old_file_stays(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    path, good = tmp_path / "f.jsonl", decode(trajectory_id="x")
    codec.write(path, [good])
    with pytest.raises(InputError, match="trajectory x: "):
        codec.write(path, [good, replace(good, **change)])
    assert list(codec.read(path)) == [good]
    assert [p.name for p in tmp_path.iterdir()] == ["f.jsonl"]


def test_an_error_of_the_source_goes_through_and_leaves_the_old_file(tmp_path: Path) -> None:
    path, good = tmp_path / "f.jsonl", decode()
    codec.write(path, [good])

    def broken() -> Iterator[Trajectory]:
        yield good
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        codec.write(path, broken())
    assert list(codec.read(path)) == [good]
    assert [p.name for p in tmp_path.iterdir()] == ["f.jsonl"]


def test_a_path_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        StropError, match=r"f\.jsonl: cannot be written \(a file is where a folder is needed\)"
    ):
        codec.write(tmp_path / "file" / "f.jsonl", [decode()])


def test_reading_holds_one_line_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "f.jsonl"
    long = decode(metadata={"text": "x" * 100_000})
    codec.write(path, (long for _ in range(100)))
    tracemalloc.start()
    try:
        assert sum(1 for _ in codec.read(path)) == 100
        assert tracemalloc.get_traced_memory()[1] < 3_000_000
    finally:
        tracemalloc.stop()


finite = st.floats(allow_nan=False, allow_infinity=False)
texts = st.text(st.characters(exclude_categories=()), max_size=8)
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | finite | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
unit = st.floats(0, 1)
ids = st.lists(st.integers(0, 2**40), min_size=1, max_size=4).map(tuple)


@st.composite
def turns(draw: st.DrawFn) -> Turn:
    sampled = draw(ids)
    return Turn(
        prompt_ids=draw(ids),
        sampled_ids=sampled,
        logprobs=tuple(draw(st.lists(st.floats(-1e300, 0), min_size=len(sampled), max_size=len(sampled)))),
        finish_reason=draw(st.sampled_from(["stop", "length", "abort"])),
        message_index=0,
        policy_version=draw(st.integers(0, 99)),
        temperature=draw(st.floats(0, 2)),
    )


@st.composite
def trajectories(draw: st.DrawFn) -> Trajectory:
    message = st.dictionaries(texts, plain, max_size=3).map(lambda m: m | {"role": "user"})
    score, unscored = draw(st.sampled_from([(None, None), (draw(unit), None), (None, "timeout")]))
    named = texts.filter(bool)
    return Trajectory(
        trajectory_id=draw(named),
        scenario_id=draw(named),
        group_id=draw(named),
        messages=tuple(draw(st.lists(message, min_size=1, max_size=3))),
        tools=tuple(draw(st.lists(st.dictionaries(texts, plain, max_size=2), max_size=2))),
        turns=tuple(draw(st.lists(turns(), max_size=2))),
        score=score,
        unscored=unscored,
        failure=draw(st.none() | texts),
        truth=draw(st.none() | unit),
        first_wrong_step=draw(st.none() | st.integers(0, 9)),
        metrics=draw(st.dictionaries(texts, finite, max_size=2)),
        metadata=draw(st.dictionaries(texts, plain, max_size=2)),
    )


def joined(value: Any) -> Any:
    """Surrogates that stand side by side as a pair are one character, in JSON as in UTF-16."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    if isinstance(value, list):
        return [joined(item) for item in value]
    if isinstance(value, dict):
        return {joined(key): joined(item) for key, item in value.items()}
    return value


@settings(max_examples=150)
@given(trajectories())
def test_round_trip_is_exact_to_the_last_bit(trajectory: Trajectory) -> None:
    fields = codec.to_dict(trajectory)
    again = codec.from_dict(json.loads(json.dumps(fields)), where="f:1")
    assert repr(codec.to_dict(again)) == repr(joined(fields))
    assert codec.from_dict(fields, where="f:1") == trajectory


@given(st.lists(trajectories(), max_size=3))
@settings(max_examples=30)
def test_files_round_trip(tmp_path_factory: pytest.TempPathFactory, written: list[Trajectory]) -> None:
    path = tmp_path_factory.mktemp("codec") / "f.jsonl"
    codec.write(path, written)
    assert [joined(codec.to_dict(t)) for t in codec.read(path)] == [joined(codec.to_dict(t)) for t in written]


def test_lone_surrogates_survive(tmp_path: Path) -> None:
    made = decode(metadata={"text": "a\ud800b\udfff"}, trajectory_id="\udc80")
    codec.write(tmp_path / "f.jsonl", [made])
    assert list(codec.read(tmp_path / "f.jsonl")) == [made]


@given(trajectories())
@settings(max_examples=30)
def test_content_hash_sees_messages_and_tools_and_nothing_else(trajectory: Trajectory) -> None:
    digest = codec.content_hash(trajectory)
    other = replace(trajectory, trajectory_id="other", score=0.5, unscored=None, turns=(), metadata={})
    reordered = replace(
        trajectory, messages=tuple(dict(reversed(list(m.items()))) for m in trajectory.messages)
    )
    changed = replace(trajectory, messages=(*trajectory.messages, {"role": "user"}))
    assert codec.content_hash(other) == codec.content_hash(reordered) == digest
    assert codec.content_hash(changed) != digest

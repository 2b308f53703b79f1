"""Fitting lines into a budget: what is cut first, how it is marked, and that nothing breaks."""

import re
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strop.judge.budget import KEPT_BYTES, fit
from strop.judge.transcript import IMAGE, Line, harmless
from strop.judge.view import FLOOR_BYTES

MARK = re.compile(r"\n<cut (\d+) characters>(?:\n  )?")
PICTURE = {"type": "image_url", "image_url": {"url": "https://pictures/1"}}

texts = st.text("<&lt;ab \n\tä漢😀\u2028", max_size=300).map(lambda text: harmless(text * 7).rstrip())
lines_drawn = st.lists(
    st.builds(
        lambda head, text, times: Line(head, (text * times).rstrip()),
        st.sampled_from(["result ", "assistant: ", "call refund ", "reasoning: "]),
        texts,
        st.integers(1, 5),
    ),
    min_size=1,
    max_size=30,
)


def size(lines: Sequence[Line]) -> int:
    return len("\n".join(str(line) for line in lines).encode())


def test_what_fits_comes_back_as_it_is() -> None:
    lines = [Line("assistant: ", "x" * 500), Line("result ", "y" * 480)]
    fitted = fit(lines, FLOOR_BYTES, 1)
    assert (fitted.lines, fitted.lost) == (lines, 0)


def test_results_are_levelled_longest_first_and_nothing_else_is_touched() -> None:
    said = Line("assistant: ", "s" * 2000)
    lines = [
        said,
        *(Line("result ", letter * n) for letter, n in (("a", 5000), ("b", 300), ("c", 3000))),
        said,
    ]
    # 2 x 2012 bytes are said and 308 are the short result, so 10000 - 4332 remain: 2834 for each of the two
    fitted = fit(lines, 10_000, 1)
    assert fitted.lines[0] == fitted.lines[4] == said
    assert fitted.lines[2] == lines[2]
    for cut in (fitted.lines[1], fitted.lines[3]):
        assert 2834 - 20 < len(str(cut)) + 1 <= 2834
    assert 10_000 - 40 < size(fitted.lines) <= 10_000


def test_a_cut_is_in_the_middle_and_says_how_much() -> None:
    text = "A" * 3000 + "B" * 4000 + "C" * 3000
    (line,) = fit([Line("result ", text)], 2000, 1).lines
    first, removed, last = re.fullmatch(r"result (A+)\n<cut (\d+) characters>\n  (C+)", str(line)).groups()  # type: ignore[union-attr]
    assert len(first) + int(removed) + len(last) == 10_000
    assert abs(len(first) - len(last)) <= 1


def test_long_texts_follow_when_results_are_at_their_floor() -> None:
    results = [Line("result ", "r" * 2000)] * 3
    lines = [
        Line("assistant: ", "a" * 500),
        Line("call pay ", "b" * 9000),
        *results,
        Line("assistant: ", "c" * 500),
    ]
    fitted = fit(lines, 6000, 1)
    assert [len(str(line)) + 1 for line in fitted.lines[2:5]] == pytest.approx([KEPT_BYTES] * 3, abs=20)
    assert fitted.lines[0] == lines[0]
    assert fitted.lines[5] == lines[5]
    assert 6000 - 60 < size(fitted.lines) <= 6000


def test_at_last_whole_lines_go_from_the_middle_under_one_mark() -> None:
    lines = [Line("assistant: ", f"{number:03d}" * 100) for number in range(100)]  # 312 bytes each
    fitted = fit(lines, 3200, 1)
    assert [str(line)[-3:] for line in fitted.lines] == [
        "000", "001", "002", "003", "004", "rs>", "095", "096", "097", "098", "099",
    ]  # fmt: skip
    assert str(fitted.lines[5]) == f"<cut 90 steps, {90 * 311} characters>"
    assert fitted.lost == 90 * 311


def test_first_and_last_keep_more_than_what_is_between() -> None:
    lines = [Line("assistant: ", "x" * 4000)] * 200
    shown = [len(str(line)) for line in fit(lines, 16_000, 1).lines]
    assert shown[0] == pytest.approx(2000, abs=20)
    assert shown[-1] == pytest.approx(2000, abs=20)
    assert max(shown[1:-1]) <= KEPT_BYTES


@settings(max_examples=200, deadline=None)
@given(lines_drawn, st.integers(FLOOR_BYTES, 9000))
def test_any_lines_fit_and_every_cut_is_accounted_for(lines: list[Line], room: int) -> None:
    fitted = fit(lines, room, 1)
    shown = [str(line) for line in fitted.lines]
    assert size(fitted.lines) <= room
    steps = [re.fullmatch(r"<cut (\d+) steps?, (\d+) characters>", text) for text in shown]
    marks = [int(number) for text in shown for number in MARK.findall(text)]
    assert sum(marks) + sum(int(step.group(2)) for step in steps if step) == fitted.lost
    assert sum(int(step.group(1)) if step else 1 for step in steps) == len(lines)
    place = 0
    for text, step in zip(shown, steps, strict=True):
        if step:
            place += int(step.group(1))
            continue
        whole = str(lines[place])
        first, *last = MARK.split(text)[::2]
        assert whole.startswith(first)
        assert whole.endswith("".join(last))
        place += 1


@given(st.integers(FLOOR_BYTES, 1500), st.sampled_from(["<", "a<", "\n<", "ä<", "<\n"]), st.booleans())
def test_no_escape_is_cut_apart(room: int, unit: str, result: bool) -> None:
    line = Line("result " if result else "user: ", harmless(unit * 3000).rstrip())
    text = MARK.sub("", fit([line], room, 1).lines[0].text)
    assert set(text.replace("&lt;", "")) <= set("aä\n ")


def test_images_beyond_half_the_room_are_marked_as_cut() -> None:
    line = Line("user: ", "\n  ".join([IMAGE] * 5), (PICTURE,) * 5)
    (shown,) = fit([line], 10_000, 2500).lines
    assert str(shown) == "user: <image>\n  <cut 1 image>\n  <cut 1 image>\n  <cut 1 image>\n  <image>"
    assert len(shown.images) == 2
    assert fit([line], 10_000, 2500).lost > 0


@given(
    st.integers(FLOOR_BYTES, 20_000), st.lists(st.booleans(), min_size=1, max_size=60), st.integers(1, 900)
)
def test_images_and_marks_stay_as_many(room: int, pictured: list[bool], words: int) -> None:
    pieces = [IMAGE if picture else "word " * words for picture in pictured]
    given_images = tuple({"number": number} for number in range(sum(pictured)))
    line = Line("user: ", "\n  ".join(pieces).rstrip(), given_images)
    (shown,) = fit([line], room, 300).lines
    assert shown.text.count(IMAGE) == len(shown.images)
    assert size([shown]) + 300 * len(shown.images) <= room
    numbers = [image["number"] for image in shown.images]
    assert numbers == sorted(numbers)

"""Incremental text: nothing shown is ever taken back, and nothing is lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strop.inference.scripted import ByteTokenizer
from strop.inference.streaming import ShownText, TextStream

TOKENIZER = ByteTokenizer()


@given(st.text())
def test_pieces_make_the_text_and_are_whole_characters(text):
    stream = TextStream(TOKENIZER.decode)
    pieces = [stream.feed(token) for token in TOKENIZER.encode(text, special=False)]
    held = "\ufffd" if text.endswith("\ufffd") else ""  # told from an unfinished character only at the end
    assert text.startswith("".join(pieces))
    assert "".join(pieces) == text or held
    if "\ufffd" not in text:
        assert all("\ufffd" not in piece for piece in pieces)


def cut(text, markers):
    """What may be shown of a whole text: brute force over every position."""
    ends = [at for at in range(len(text)) if any(text.startswith(marker, at) for marker in markers)]
    return text[: min(ends)].strip() if ends else text.strip()


PIECES = st.lists(st.text(alphabet="ab< \n", max_size=4), max_size=12)
MARKERS = st.lists(st.text(alphabet="ab<", min_size=1, max_size=4), max_size=3)


@given(PIECES, MARKERS)
def test_shown_text_is_a_beginning_of_the_content_and_rest_is_the_remainder(pieces, markers):
    shown_text = ShownText(markers)
    content = cut("".join(pieces), markers)
    shown = ""
    for piece in pieces:
        shown += shown_text.feed(piece)
        assert content.startswith(shown)
    assert shown + shown_text.rest(content) == content


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        (["a", "b"], ["a", "b"]),
        (["a ", "b"], ["a", " b"]),
        (["a<", "b"], ["a", "<b"]),
        (["a<ca", "ll>x"], ["a", ""]),
        (["a<call>", "more"], ["a", ""]),
    ],
)
def test_text_is_shown_as_early_as_it_is_certain(pieces, expected):
    shown = ShownText(["<call>"])
    assert [shown.feed(piece) for piece in pieces] == expected

import pytest

from strop.grader.spans import text_kinds, token_kinds

CODES = {"reasoning": "r", "prose": "p", "tool_name": "n", "tool_arguments": "a", "template": "t"}


def codes(text):
    return "".join(CODES[kind] for kind in text_kinds(text))


def marked(text, part, code):
    start = text.index(part)
    return codes(text)[start : start + len(part)] == code * len(part)


CALL = 'Let me see.\n<tool_call>\n{"name": "refund", "arguments": {"name": "Bo}b"}}\n</tool_call>'


@pytest.mark.parametrize(
    ("part", "code"),
    [
        ("Let me see.\n", "p"),
        ("<tool_call>", "t"),
        ("refund", "n"),
        ('"arguments": ', "t"),
        ('{"name": "Bo}b"}', "a"),
        ("</tool_call>", "t"),
    ],
)
def test_parts_of_a_call(part, code):
    assert marked(CALL, part, code)


def test_a_name_inside_the_arguments_is_an_argument_also_when_it_comes_first():
    text = '<tool_call>{"arguments": {"name": "x"}, "name": "look"}</tool_call>'
    assert marked(text, '{"name": "x"}', "a")
    assert marked(text, "look", "n")


def test_text_that_stops_being_json_is_prose_from_there():
    text = '<tool_call>{"name": "look", "arguments": {oops}</tool_call>'
    assert marked(text, "look", "n")
    assert marked(text, "{oops}", "p")


def test_a_call_cut_off_and_reasoning():
    assert marked('<tool_call>{"name": "look"', "look", "n")
    assert codes("<think>ab</think>c") == "t" * 7 + "rr" + "t" * 8 + "p"
    assert codes("") == ""
    assert codes("<tool_call></tool_call>") == "t" * 23
    assert codes('<tool_call>{"name": 3}</tool_call>')[11:22] == "p" * 11


def test_t05_reasoning_that_the_prompt_began_ends_with_its_tag():
    """The generation prompt ended in <think>, so the reply holds the end alone."""
    said = "2+2 equals 4.\n</think>\n\nThe answer is 4."
    assert marked(said, "2+2 equals 4.\n", "r")
    assert marked(said, "</think>", "t")
    assert marked(said, "\n\nThe answer is 4.", "p")
    assert marked(f"so </think>{CALL}", "so ", "r")
    assert marked(f"so </think>{CALL}", "refund", "n")
    assert codes("</think>a") == "t" * 8 + "p"
    assert codes("a</think>b<think>c</think>") == "r" + "t" * 8 + "p" + "t" * 7 + "r" + "t" * 8


def test_t05_a_tag_inside_a_call_or_after_reasoning_of_its_own_begins_nothing():
    inside = '<tool_call>{"name": "say", "arguments": {"text": "</think>"}}</tool_call>'
    assert marked(inside, "say", "n")
    assert marked(f"Hm. {inside}", "Hm. ", "p")
    assert codes("a<think>b</think>") == "p" + "t" * 7 + "r" + "t" * 8
    assert codes("<think>b</think>c</think>d")[16:] == "p" * 10


def test_every_character_has_one_kind_however_the_text_is_cut():
    for end in range(len(CALL) + 1):
        assert len(text_kinds(CALL[:end])) == end


PIECES = [
    "Hi",
    " there",
    '<tool_call>{"name": "',
    "look",
    '", "arguments": ',
    '{"a": 1}',
    "}</tool_call>",
    "",
]


def test_tokens_take_the_kind_of_their_text_and_control_tokens_are_template():
    kinds = token_kinds(range(8), lambda ids: "".join(PIECES[i] for i in ids))
    assert kinds == (
        "prose", "prose", "template", "tool_name", "template", "tool_arguments", "template", "template",
    )  # fmt: skip


def test_two_tokens_that_share_a_character():
    raw = "é".encode()

    def decode(ids):
        return bytes(raw[i] for i in ids).decode(errors="replace")

    assert token_kinds([0, 1], decode) == ("prose", "prose")


def test_only_control_tokens():
    assert token_kinds([5], lambda ids: "") == ("template",)

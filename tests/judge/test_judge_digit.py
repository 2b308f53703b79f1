"""A digit's expected score, against hand arithmetic, and what is wrong with a reply that is no digit."""

from math import exp, inf, log, nan

import pytest

from strop.judge.digit import expected_digit, parse_digit
from strop.judge.verdict import Alternatives, Verdict

SEVEN: Alternatives = ((("7", log(0.5)), ("8", log(0.25)), ("6", log(0.125)), ("seven", log(0.125))),)
# (7 * 0.5 + 8 * 0.25 + 6 * 0.125) / 0.875 / 9 = 6.25 / 7.875 = 50 / 63
SCORE = pytest.approx(50 / 63)


def outcome(verdict: Verdict) -> float | str:
    return verdict.scores["1"] if verdict.scores is not None else str(verdict.failure)


def sampled(*tokens: str) -> Alternatives:
    """Tokens that were certain."""
    return tuple(((token, 0.0),) for token in tokens)


def test_the_mean_over_digits_is_normalised_by_their_mass() -> None:
    assert expected_digit(SEVEN, "7") == (SCORE, pytest.approx(0.875))
    verdict = parse_digit("7", SEVEN, "length")
    assert outcome(verdict) == SCORE
    assert "0.875" in verdict.detail
    assert verdict.flags == ()


def test_certain_digits_are_ninths() -> None:
    for digit in range(10):
        assert outcome(parse_digit(f"{digit}", sampled(f"{digit}"), "stop")) == pytest.approx(digit / 9)


def test_spellings_of_one_digit_by_the_tokenizer_add_up() -> None:
    # " 3" and "▁3" and "Ġ3" have 0.6 together, "9" has 0.4: (3 * 0.6 + 9 * 0.4) / 9 = 0.6
    places: Alternatives = ((("▁3", log(0.3)), (" 3", log(0.2)), ("Ġ3", log(0.1)), ("9", log(0.4))),)
    assert expected_digit(places, " 3") == (pytest.approx(0.6), pytest.approx(1.0))
    assert expected_digit(places, "3") == (pytest.approx(0.6), pytest.approx(1.0))


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("Score: 7", ["Score", ":", " "]),
        ("**Score:** 7", ["**", "Score", ":**", " "]),
        ('{"score": 7}', ['{"', "score", '":', " "]),
        ("Because it works.\n7", ["Because", " it", " works", ".\n"]),
        ("<think>3 of 4 failed</think>7", ["<think>", "3", " of", " 4", " failed", "</think>"]),
        ("7", ["<|assistant|>", "\n"]),
        ("\n\n7\n", ["\n\n"]),
    ],
)
def test_the_digit_is_found_in_a_longer_reply(text: str, tokens: list[str]) -> None:
    places = (*sampled(*tokens), *SEVEN, *sampled("\n", "<|eot_id|>"))
    if text.endswith("}"):
        places = (*sampled(*tokens), *SEVEN, *sampled("}"))
    assert outcome(parse_digit(text, places, "stop")) == SCORE


def test_the_likeliest_tokens_that_make_up_the_text_tell_where_the_digit_is() -> None:
    """ "Score: 7" as "Score", ":", " ", "7", though " 7" was an unlikely alternative at the third place."""
    third = ((" ", log(0.9)), (" 7", log(0.04)), (" 2", log(0.06)))
    places: Alternatives = (*sampled("Score", ":"), third, SEVEN[0])
    assert expected_digit(places, "Score: 7") == (SCORE, pytest.approx(0.875))
    other: Alternatives = (*sampled("Score", ":"), ((" 7", log(0.9)), (" ", log(0.1))), ((".", 0.0),))
    assert expected_digit(other, "Score: 7.") == (pytest.approx(7 / 9), pytest.approx(0.9))


WRONG = {
    "": "empty",
    " \n": "empty",
    "<think>it is fine</think>": "empty",
    "<think>it is a 7": "truncated",
    "I'm sorry, I can't rate this.": "refusal",
    "good": "wrong_schema",
    "10": "wrong_schema",
    "7/10": "wrong_schema",
    "7.5": "wrong_schema",
    "-7": "wrong_schema",
    "07": "wrong_schema",
    "70%": "wrong_schema",
    "7%": "wrong_schema",
    "Score: 7 out of 10": "wrong_schema",
    "7²": "wrong_schema",
    "７": "wrong_schema",
    "٧": "wrong_schema",
    "It made 3 errors.": "wrong_schema",
    "3 errors": "wrong_schema",
    "7 or 8": "ambiguous",
    "7\n8": "ambiguous",
    "Score: 7, since step 3 failed": "ambiguous",
}


@pytest.mark.parametrize(("text", "failure"), WRONG.items())
def test_what_is_no_digit_has_a_name(text: str, failure: str) -> None:
    assert outcome(parse_digit(text, sampled(*text), "stop")) == failure
    assert expected_digit(sampled(*text), text) is None


def test_a_limit_met_before_any_digit_is_truncation() -> None:
    assert outcome(parse_digit("", (), "length")) == "truncated"
    assert outcome(parse_digit("The attempt", sampled("The", " attempt"), "length")) == "truncated"
    assert outcome(parse_digit("It made 3", sampled("It", " made", " 3"), "length")) == "wrong_schema"
    assert outcome(parse_digit("7", SEVEN, "content_filter")) == "refusal"
    assert outcome(parse_digit(None, (), "stop")) == "empty"


@pytest.mark.parametrize(
    "places",
    [
        (),
        ((("7", log(0.3)), ("8", log(0.15)), ("The", log(0.55))),),
        ((("7", nan),),),
        ((("7", 0.0), ("8", -inf)),),
        ((("7", 0.5),),),
        ((("7", 0.0), ("8", 0.0)),),
        ((("8", 0.0),),),
        ((("7.", 0.0), ("8.", -9.0)),),
    ],
)
def test_log_probabilities_that_say_nothing_are_a_bad_score(places: Alternatives) -> None:
    assert outcome(parse_digit("7", places, "stop")) == "bad_score"


def test_half_of_the_probability_is_enough() -> None:
    places: Alternatives = ((("9", log(0.25)), ("0", log(0.2500001)), ("x", log(0.4999999))),)
    assert outcome(parse_digit("9", places, "stop")) == pytest.approx(9 * 0.25 / 0.5000001 / 9)
    assert expected_digit(((("9", log(0.1)),),), "9") == (1.0, pytest.approx(exp(log(0.1))))


def test_a_repeated_digit_is_one_digit() -> None:
    verdict = parse_digit("7\nScore: 7", (*SEVEN, *sampled("\n", "Score", ":", " 7")), "stop")
    assert outcome(verdict) == SCORE
    assert verdict.flags == ("tolerant",)

import pytest

from strop.report.wording import basis, duration, headline, interval, share, value


def estimate(e, low, high, **more):
    return {"estimate": e, "low": low, "high": high, "n": 200, "method": "Wilson 95%", **more}


BEFORE, AFTER = estimate(0.5, 0.43, 0.57), estimate(0.93, 0.89, 0.96)


@pytest.mark.parametrize(
    ("difference", "verb"),
    [
        (estimate(0.43, 0.35, 0.5), "rose from 50 % to 93 %"),
        (estimate(-0.1, -0.2, -0.05), "fell from"),
        (estimate(0.01, -0.1, 0.1), "did not move measurably: it went from"),
        (None, "went from 50 %"),
    ],
)
def test_the_verb_follows_the_interval(difference, verb):
    said = headline({"truth_before": BEFORE, "truth_after": AFTER, "truth_difference": difference})
    assert verb in said


@pytest.mark.parametrize(
    ("number", "two", "whole"),
    [(0.975, "0.98", "98 %"), (0.585, "0.59", "59 %"), (0.965, "0.97", "97 %"), (1.0, "1.00", "100 %")],
)
def test_halves_are_rounded_up_in_both_ways_of_writing(number, two, whole):
    assert (value(estimate(number, 0, 1)), share(estimate(number, 0, 1))) == (two, whole)


def test_a_share_in_percent_is_the_one_in_hundredths():
    for successes in range(201):
        one = estimate(successes / 200, 0, 1)
        assert share(one) == f"{round(100 * float(value(one)))} %"


def test_no_number_is_never_a_number():
    none = estimate(None, None, None)
    assert (value(none), share(None), interval(none), basis(None)) == (
        "not measured",
        "not measured",
        "",
        "not measured",
    )
    assert "not measured" in headline({})


def test_numbers_with_what_they_rest_on():
    assert (value(AFTER), share(AFTER), interval(AFTER)) == ("0.93", "93 %", "0.89 to 0.96")
    assert (
        basis(AFTER | {"clusters": 40, "excluded": 3})
        == "n = 200, 40 independent units, 3 left out, Wilson 95%"
    )


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.0, "0 s"),
        (0.04, "0.0 s"),
        (0.3, "0.3 s"),
        (59.4, "59 s"),
        (185, "3 min 05 s"),
        (7800, "2 h 10 min"),
    ],
)
def test_durations(seconds, said):
    assert duration(seconds) == said

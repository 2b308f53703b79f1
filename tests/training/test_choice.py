"""The best evaluated policy, and how long there was no gain, by hand."""

from typing import Any

import pytest

from strop.training.choice import best, chosen_by, value, without_gain


def lines(truth: list[float | None] | None, rates: list[float | None]) -> list[dict[str, Any]]:
    """An evaluation every 2 steps, the first before training and without a win rate."""
    made = []
    for number, rate in enumerate([None, *rates]):
        own = None if truth is None or truth[number] is None else {"estimate": truth[number]}
        won = None if not number else {"estimate": rate}
        made.append({"steps": 2 * number, "truth": own, "win_rate": won})
    return made


@pytest.mark.parametrize(
    ("truth", "rates", "by", "steps", "stalled"),
    [
        ([0.4, 0.5, 0.7, 0.6], [0.9, 0.1, 0.2], "truth", 4, 1),
        ([0.4, 0.4, 0.4, 0.4], [0.9, 0.9, 0.9], "truth", 0, 3),
        ([0.4, 0.5, None, 0.5], [0.9, 0.9, 0.9], "truth", 2, 1),
        (None, [0.6, 0.55, 0.6], "win_rate", 2, 2),
        (None, [0.5, 0.4, 0.3], "win_rate", 0, 3),
        (None, [None, None, None], "win_rate", 0, 0),
        (None, [0.4, None, 0.6], "win_rate", 6, 0),
    ],
)
def test_the_earliest_highest_is_best(
    truth: list[float | None] | None, rates: list[float | None], by: str, steps: int, stalled: int
) -> None:
    """Truth decides where it is known; an equal one is no gain; no number is neither gain nor loss."""
    made = lines(truth, rates)
    assert chosen_by(made) == by
    found = best(made)
    assert found is not None
    assert found["steps"] == steps
    assert without_gain(made) == stalled


def test_before_training_a_policy_is_even_with_itself() -> None:
    (only,) = lines(None, [])
    assert value(only, "win_rate") == 0.5
    assert value(only, "truth") is None


def test_no_evaluation_is_no_best() -> None:
    assert best([]) is None
    assert without_gain([]) == 0

"""The probe: where it asks, and what it compares."""

import numpy as np
import pytest

from strop.engines.local.probe import Probe, answers, gap, likely, sharpest
from strop.trajectory.tokens import Row


def row(ids: list[int], mask: list[int], logprobs: list[float], temperature: float = 1.0) -> Row:
    return Row(
        trajectory_id="t",
        ids=np.array(ids, dtype=np.int64),
        mask=np.array(mask, dtype=np.bool_),
        logprobs=np.array(logprobs),
        turn_of=np.where(np.array(mask), 0, -1),
        temperature=temperature,
    )


def test_it_asks_before_the_token_that_moved_most() -> None:
    rows = [
        row([5, 6, 7, 8], [0, 1, 1, 0], [0, -0.1, -0.7, 0]),
        row([5, 9, 3], [0, 0, 1], [0, 0, -0.2], temperature=0.5),
    ]
    before = [np.array([-0.1, -0.7]), np.array([-0.2])]
    found = sharpest(rows, before, [np.array([-0.1, -0.3]), np.array([-1.2])])
    assert found is not None
    assert found.prompt == (5, 9)
    assert found.temperature == 0.5
    assert found.separation == pytest.approx(1.0)


def test_tokens_too_unlikely_to_compare_are_passed_over() -> None:
    # log 0.05 is -2.996: the first token was below it and moved by far the most.
    found = sharpest(
        [row([5, 6, 7], [0, 1, 1], [0, -3.1, -2.9])], [np.array([-3.1, -2.9])], [np.array([-0.5, -2.8])]
    )
    assert found is not None
    assert found.prompt == (5, 6)


def test_nothing_moved_or_nothing_sampled_leaves_no_probe() -> None:
    still = row([5, 6], [0, 1], [0, -0.3])
    assert sharpest([still], [np.array([-0.3])], [np.array([-0.3])]) is None
    assert sharpest([], [], []) is None


def test_answers_are_the_prompt_with_one_sampled_token_each() -> None:
    made = answers(Probe(prompt=(1, 2), temperature=0.7), [8, 9])
    assert [one.ids.tolist() for one in made] == [[1, 2, 8], [1, 2, 9]]
    assert [one.mask.tolist() for one in made] == [[False, False, True]] * 2
    assert {one.temperature for one in made} == {0.7}


def test_only_likely_tokens_are_compared_and_the_first_always_is() -> None:
    assert likely([(3, -0.5), (4, -1.0), (5, -3.0)]) == {3: -0.5, 4: -1.0}
    assert likely([(3, -5.0), (4, -6.0)]) == {3: -5.0}


def test_the_gap_is_the_mean_difference_weighted_by_probability() -> None:
    # e^-0.5 = 0.60653 and e^-1 = 0.36788: (0.60653 * 0.1 + 0.36788 * 0.3) / 0.97441 = 0.17551
    assert gap({3: -0.5, 4: -1.0}, {3: -0.4, 4: -1.3, 9: -7.0}) == pytest.approx(0.17551, abs=1e-5)

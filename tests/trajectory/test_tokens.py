"""Rows from turns: known answers of peers' token merges, and DESIGN's invariants as properties."""

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strop.errors import InputError
from strop.trajectory.model import Turn
from strop.trajectory.tokens import Row, check_turn, rows


def turn(prompt: list[int], sampled: list[int], *, message: int = 1, temperature: float = 1.0) -> Turn:
    return Turn(
        prompt_ids=tuple(prompt),
        sampled_ids=tuple(sampled),
        logprobs=tuple(-0.25 * (i + 1) for i in range(len(sampled))),
        finish_reason="stop",
        message_index=message,
        temperature=temperature,
    )


def shape(found: list[Row]) -> list[tuple[list[int], list[int]]]:
    return [(row.ids.tolist(), row.mask.astype(int).tolist()) for row in found]


def test_clean_merge_is_one_row_with_both_turns_trained() -> None:
    found = rows("t", [turn([1, 2], [10, 11]), turn([1, 2, 10, 11, 3, 4], [12])])
    assert shape(found) == [([1, 2, 10, 11, 3, 4, 12], [0, 0, 1, 1, 0, 0, 1])]
    assert found[0].logprobs.tolist() == [0, 0, -0.25, -0.5, 0, 0, -0.25]
    assert found[0].turn_of.tolist() == [-1, -1, 0, 0, -1, -1, 1]


def test_drift_forks_and_drops_no_sampled_token() -> None:
    found = rows("t", [turn([1, 2], [10, 11]), turn([1, 2, 99, 3, 4], [12])])
    assert shape(found) == [
        ([1, 2, 10, 11], [0, 0, 1, 1]),
        ([1, 2, 99, 3, 4, 12], [0, 0, 0, 0, 0, 1]),
    ]


def test_t02_the_same_text_in_other_ids_forks() -> None:
    """Both pairs spell one word in Qwen's vocabulary: what was sampled is trained, the other pair is not."""
    found = rows("t", [turn([1, 2], [53122, 316]), turn([1, 2, 393, 30002, 5], [7])])
    assert shape(found) == [
        ([1, 2, 53122, 316], [0, 0, 1, 1]),
        ([1, 2, 393, 30002, 5, 7], [0, 0, 0, 0, 0, 1]),
    ]


def test_reasoning_stripped_by_the_template_gives_three_rows_and_eleven_trained_tokens() -> None:
    found = rows(
        "t",
        [
            turn([1, 2], [50, 51, 10, 9]),
            turn([1, 2, 10, 9, 3], [60, 61, 12, 9]),
            turn([1, 2, 10, 9, 3, 12, 9, 4], [70, 13, 9]),
        ],
    )
    assert [row.ids.tolist() for row in found] == [
        [1, 2, 50, 51, 10, 9],
        [1, 2, 10, 9, 3, 60, 61, 12, 9],
        [1, 2, 10, 9, 3, 12, 9, 4, 70, 13, 9],
    ]
    assert sum(int(row.mask.sum()) for row in found) == 11


def test_compacted_history_forks() -> None:
    assert shape(rows("t", [turn([1, 2], [10]), turn([7, 8], [12])])) == [
        ([1, 2, 10], [0, 0, 1]),
        ([7, 8, 12], [0, 0, 1]),
    ]


def test_prompt_that_truncates_a_sampled_reply_forks() -> None:
    assert shape(rows("t", [turn([1, 2], [10, 11, 12]), turn([1, 2, 10], [13])])) == [
        ([1, 2, 10, 11, 12], [0, 0, 1, 1, 1]),
        ([1, 2, 10, 13], [0, 0, 0, 1]),
    ]


def test_t10_a_reply_of_one_token_is_trained() -> None:
    assert shape(rows("t", [turn([1], [2])])) == [([1, 2], [0, 1])]


def test_t14_trained_count_is_the_sum_of_the_mask_not_its_span() -> None:
    (row,) = rows("t", [turn([1, 1, 1], [5, 5, 5, 5]), turn([1, 1, 1, 5, 5, 5, 5, 2, 2, 2], [6] * 5)])
    trained = np.flatnonzero(row.mask)
    assert trained[-1] - trained[0] + 1 == 12
    assert row.mask.sum() == 9


def test_the_same_prompt_sampled_twice_gives_two_rows() -> None:
    assert shape(rows("t", [turn([1], [2]), turn([1], [3])])) == [([1, 2], [0, 1]), ([1, 3], [0, 1])]


def test_a_turn_may_continue_without_anything_in_between() -> None:
    assert shape(rows("t", [turn([1], [2]), turn([1, 2], [3])])) == [([1, 2, 3], [0, 1, 1])]


def test_the_longest_fitting_branch_is_continued() -> None:
    found = rows("t", [turn([1], [2]), turn([1, 2, 9], [3]), turn([1], [2]), turn([1, 2, 9, 3, 9], [4])])
    assert [row.ids.tolist() for row in found] == [[1, 2, 9, 3, 9, 4], [1, 2]]


def test_a_sub_agent_between_two_turns_does_not_break_the_first_branch() -> None:
    found = rows("t", [turn([1], [2]), turn([8], [9]), turn([1, 2, 3], [4])])
    assert [row.turn_of.tolist() for row in found] == [[-1, 0, -1, 2], [-1, 1]]


def test_a_change_of_temperature_forks() -> None:
    found = rows("t", [turn([1], [2]), turn([1, 2, 3], [4], temperature=0.5)])
    assert [(row.ids.tolist(), row.temperature) for row in found] == [([1, 2], 1.0), ([1, 2, 3, 4], 0.5)]


def test_no_turns_give_no_rows() -> None:
    assert rows("t", []) == []


GOOD = turn([1], [2, 3])


@pytest.mark.parametrize(
    ("bad", "line"),
    [
        (replace(GOOD, logprobs=(-1.0,)), "2 sampled ids but 1 log-probs"),
        (replace(GOOD, logprobs=(-1.0, math.nan)), "finite"),
        (replace(GOOD, logprobs=(-1.0, -math.inf)), "finite"),
        (replace(GOOD, logprobs=(-1.0, 0.5)), "at most 0"),
        (replace(GOOD, sampled_ids=(), logprobs=()), "no sampled token"),
        (replace(GOOD, prompt_ids=()), "no prompt token"),
        (replace(GOOD, prompt_ids=(-1,)), "negative token id"),
        (replace(GOOD, sampled_ids=(2, -3)), "negative token id"),
        (replace(GOOD, temperature=math.nan), "temperature"),
        (replace(GOOD, temperature=-1.0), "temperature"),
    ],
)
def test_t08_a_turn_that_cannot_be_trained_is_refused(bad: Turn, line: str) -> None:
    with pytest.raises(InputError, match=f"turn for message 1: .*{line}"):
        rows("t", [GOOD, bad])


def test_certain_and_greedy_tokens_are_accepted() -> None:
    check_turn(replace(GOOD, logprobs=(0.0, -0.0), temperature=0.0))


@st.composite
def turn_lists(draw: st.DrawFn) -> list[Turn]:
    """Turns whose prompts extend, truncate, edit or ignore what came before, over a tiny vocabulary."""
    ids = st.lists(st.integers(0, 2), min_size=1, max_size=4)
    made: list[Turn] = []
    for message in range(draw(st.integers(0, 6))):
        base = draw(st.sampled_from([(), *(t.prompt_ids + t.sampled_ids for t in made)]))
        kept = list(base[: draw(st.integers(0, len(base)))] if draw(st.booleans()) else base)
        prompt = kept + draw(st.lists(st.integers(0, 2), min_size=0 if kept else 1, max_size=3))
        temperature = draw(st.sampled_from([1.0, 0.5]))
        made.append(turn(prompt, draw(ids), message=message, temperature=temperature))
    return made


@given(turn_lists())
def test_every_sampled_token_is_trained_exactly_once_with_its_own_logprob(turns: list[Turn]) -> None:
    trained = Counter(
        (int(i), int(token), float(logprob))
        for row in rows("t", turns)
        for i, token, logprob in zip(
            row.turn_of[row.mask], row.ids[row.mask], row.logprobs[row.mask], strict=True
        )
    )
    sampled = Counter(
        (i, token, logprob)
        for i, t in enumerate(turns)
        for token, logprob in zip(t.sampled_ids, t.logprobs, strict=True)
    )
    assert trained == sampled


@given(turn_lists())
def test_up_to_each_turn_a_row_holds_exactly_what_the_engine_saw(turns: list[Turn]) -> None:
    for row in rows("t", turns):
        for i in set(row.turn_of[row.mask].tolist()):
            end = int(np.flatnonzero(row.turn_of == i)[-1]) + 1
            assert tuple(row.ids[:end].tolist()) == turns[i].prompt_ids + turns[i].sampled_ids
            assert row.temperature == turns[i].temperature
        last = turns[int(row.turn_of.max())]
        assert tuple(row.ids.tolist()) == last.prompt_ids + last.sampled_ids


@given(turn_lists())
def test_lengths_and_types_agree_and_nothing_is_trained_outside_the_mask(turns: list[Turn]) -> None:
    for row in rows("t", turns):
        assert {len(row.mask), len(row.logprobs), len(row.turn_of)} == {len(row.ids)}
        assert [a.dtype for a in (row.ids, row.mask, row.logprobs, row.turn_of)] == [
            np.int64,
            np.bool_,
            np.float64,
            np.int64,
        ]
        assert not row.mask[0]
        assert ((row.turn_of >= 0) == row.mask).all()
        assert not row.logprobs[~row.mask].any()


@settings(max_examples=30)
@given(st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=3), min_size=1, max_size=5))
def test_a_chain_that_only_grows_is_one_row(replies: list[list[int]]) -> None:
    seen, turns = [7], []
    for reply in replies:
        turns.append(turn(seen, reply))
        seen = [*seen, *reply, 7]
    (row,) = rows("t", turns)
    assert row.ids.tolist() == seen[:-1]

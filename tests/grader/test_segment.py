import pytest

from strop.errors import InputError
from strop.grader.segment import steps
from strop.trajectory.tokens import rows


def cut(trajectory):
    return steps(trajectory, rows(trajectory.trajectory_id, trajectory.turns))


def test_one_step_for_each_assistant_message(make_two_steps):
    first, second = cut(make_two_steps())
    assert (first.index, first.message_index, second.index, second.message_index) == (0, 1, 1, 3)
    assert [p.positions.tolist() for p in (*first.parts, *second.parts)] == [[2, 3], [5]]
    assert [p.sampled.tolist() for p in (*first.parts, *second.parts)] == [[0, 1], [2]]


def test_a_fork_gives_another_row_with_its_own_count(make_turn, make_two_steps):
    forked = make_two_steps(turns=(make_turn([1, 2], [3, 4], 1), make_turn([9, 9], [6, 7], 3)))
    second = cut(forked)[1].parts[0]
    assert (second.row, second.positions.tolist(), second.sampled.tolist()) == (1, [2, 3], [0, 1])


def test_a_message_of_two_turns_is_one_step_of_two_parts(make_turn, make_two_steps):
    retried = make_two_steps(turns=(make_turn([1], [3], 1), make_turn([1], [4], 1), make_turn([8], [6], 3)))
    assert [len(step.parts) for step in cut(retried)] == [2, 1]


def test_steps_count_assistant_messages_that_no_turn_wrote_before_the_first(make_turn, make_two_steps):
    roles = ("system", "assistant", "user", "assistant")
    greeted = make_two_steps(
        messages=tuple({"role": r, "content": ""} for r in roles), turns=(make_turn([1], [2], 3),)
    )
    assert [(s.index, s.message_index) for s in cut(greeted)] == [(1, 3)]


def test_what_cannot_be_cut(make_turn, make_two_steps):
    with pytest.raises(InputError, match="no turns"):
        cut(make_two_steps(turns=()))
    with pytest.raises(InputError, match="no turn wrote message 3"):
        cut(make_two_steps(turns=(make_turn([1], [2], 1),)))
    with pytest.raises(InputError, match="rows and turns"):
        steps(make_two_steps(), [])

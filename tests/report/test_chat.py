from strop.report.chat import conversation, shared_opening
from strop.trajectory.model import Trajectory


def attempt(*messages):
    return Trajectory(trajectory_id="t", scenario_id="s", group_id="g", messages=messages)


USER = {"role": "user", "content": [{"type": "text", "text": "Hello"}]}


def test_calls_are_written_out_and_steps_counted():
    calls = [
        {"function": {"name": "look", "arguments": '{"order": "7", "n": 2}'}},
        {"function": {"name": "x", "arguments": "{oops"}},
    ]
    said = conversation(
        attempt(USER, {"role": "assistant", "content": None, "tool_calls": calls}, {"role": "tool"})
    )
    assert [(u.role, u.text, u.step) for u in said] == [
        ("user", "Hello", None),
        ("assistant", "", 0),
        ("tool", "", None),
    ]
    assert said[1].calls == ('look(order = "7", n = 2)', "x({oops)")


def test_the_opening_ends_where_the_agent_speaks_or_attempts_differ():
    same = {"role": "assistant", "content": "hi"}
    other = {"role": "user", "content": "Goodbye"}
    assert shared_opening([attempt(USER, same), attempt(USER, same)]) == 1
    assert shared_opening([attempt(USER, USER), attempt(USER, other)]) == 1
    assert shared_opening([attempt(USER), attempt(USER, same)]) == 1

"""Virtual time of a cohort: who is waited for, who may start, in which order."""

from dataclasses import dataclass

import pytest

from strop.engines.local.schedule import Cohort


@dataclass
class Ask:
    name: str
    given_up: bool = False

    def cancelled(self) -> bool:
        return self.given_up


def cohort(names: str, limit: int) -> Cohort[Ask]:
    return Cohort(list(names), limit, beat=1, thinking=2)


def post(group: Cohort[Ask], names: str) -> None:
    for name in names:
        group.post(name, Ask(name))


def admitted(group: Cohort[Ask]) -> str:
    return "".join(ask.name for ask in group.admit())


def test_all_that_may_start_are_waited_for_and_admitted_in_the_order_opened() -> None:
    group = cohort("abc", limit=3)
    post(group, "cb")
    assert group.owing() == ["a"]
    post(group, "a")
    assert group.owing() == []
    assert admitted(group) == "abc"


def test_next_request_is_due_two_steps_after_the_end_even_if_posted_early() -> None:
    group = cohort("ab", limit=2)
    post(group, "ab")
    assert admitted(group) == "ab"
    group.ended("a")
    group.advance()
    post(group, "a")
    assert admitted(group) == ""
    group.advance()
    assert group.owing() == []
    assert admitted(group) == "a"


def test_requests_are_admitted_together_on_the_beat() -> None:
    # Ends at steps 0 and 1 are due from steps 2 and 3 on: with a beat of 4, both at step 4.
    group: Cohort[Ask] = Cohort(["a", "b"], 2, beat=4, thinking=2)
    post(group, "ab")
    assert admitted(group) == "ab"
    group.ended("a")
    group.advance()
    group.ended("b")
    post(group, "ab")
    for _ in range(2):
        group.advance()
        assert admitted(group) == ""
    group.advance()
    assert admitted(group) == "ab"


def test_an_owing_session_is_waited_for_only_from_the_step_it_is_due() -> None:
    group = cohort("ab", limit=2)
    post(group, "ab")
    group.admit()
    group.ended("a")
    group.advance()
    assert group.owing() == []
    group.advance()
    assert group.owing() == ["a"]


@pytest.mark.parametrize("shut_at", [1, 2])
def test_a_shut_session_gives_its_place_at_its_due_step_whenever_it_was_shut(shut_at: int) -> None:
    group = cohort("abc", limit=2)
    post(group, "abc")
    assert admitted(group) == "ab"
    group.ended("a")
    for step in (1, 2):
        group.advance()
        if step == shut_at:
            group.shut("a")
        assert admitted(group) == ("c" if step == 2 else "")


def test_sessions_start_in_order_as_places_free() -> None:
    group = cohort("abcd", limit=1)
    started = ""
    for name in "abcd":
        post(group, name)
        started += admitted(group)
        group.ended(name)
        group.shut(name)
        group.advance()
        assert group.skip()
        group.owing()
    assert started == "abcd"
    assert group.finished


def test_a_session_waits_until_it_is_among_those_that_are_live() -> None:
    group = cohort("abc", limit=2)
    post(group, "abc")
    assert admitted(group) == "ab"
    assert [name for name in "abc" if group.waits(name)] == ["c"]
    group.ended("a")
    group.shut("a")
    for _ in range(group.thinking):
        group.advance()
    assert admitted(group) == "c"
    assert [name for name in "abc" if group.waits(name)] == []


def test_a_session_shut_before_it_starts_takes_no_place() -> None:
    group = cohort("abc", limit=1)
    group.shut("a")
    post(group, "b")
    assert admitted(group) == "b"
    assert "a" not in group


def test_a_late_session_is_excused_once_and_never_waited_for_again() -> None:
    group = cohort("ab", limit=2)
    post(group, "b")
    assert group.excuse() == 1
    assert admitted(group) == "b"
    post(group, "a")
    assert admitted(group) == "a"
    group.ended("a")
    group.advance()
    group.advance()
    assert group.owing() == []


def test_a_late_session_leaves_its_place_to_one_that_waits() -> None:
    """Agents that hang, as many as there are places, must not keep the others from beginning."""
    group = cohort("abcd", limit=2)
    assert group.owing() == ["a", "b"]
    assert group.excuse() == 2
    assert group.owing() == ["c", "d"]
    post(group, "cd")
    assert admitted(group) == "cd"
    post(group, "a")
    assert admitted(group) == "a"


def test_skip_jumps_to_the_next_due_step_only_while_nothing_runs() -> None:
    group = cohort("ab", limit=2)
    post(group, "ab")
    group.admit()
    group.ended("a")
    assert not group.skip()
    group.advance()
    group.ended("b")
    assert group.skip()
    assert group.step == 2
    assert group.owing() == ["a"]
    post(group, "a")
    group.admit()
    assert not group.skip()


def test_a_request_given_up_counts_as_not_posted() -> None:
    group = cohort("a", limit=1)
    group.post("a", Ask("a", given_up=True))
    assert group.owing() == ["a"]
    assert admitted(group) == ""


def test_two_requests_of_one_session_run_one_after_the_other() -> None:
    group = cohort("a", limit=1)
    post(group, "aa")
    assert admitted(group) == "a"
    assert admitted(group) == ""
    group.ended("a")
    assert group.skip()
    assert admitted(group) == "a"

"""Memory that is used again: by name, and grown where more is asked."""

from strop.engines.local.scratch import Scratch


def test_a_name_is_the_same_memory_each_time() -> None:
    scratch = Scratch()
    first = scratch("inner", 4, 6)
    first.fill_(3)
    again = scratch("inner", 2, 5)
    assert (first.shape, again.shape) == ((4, 6), (2, 5))
    assert again.data_ptr() == first.data_ptr()
    assert again.tolist() == [[3.0] * 5] * 2


def test_more_than_before_is_new_memory_and_stays() -> None:
    scratch = Scratch()
    small = scratch("inner", 3)
    large = scratch("inner", 5)
    assert large.data_ptr() != small.data_ptr()
    assert scratch("inner", 3).data_ptr() == large.data_ptr()


def test_names_do_not_share() -> None:
    scratch = Scratch()
    one, other = scratch("one", 8).fill_(1), scratch("other", 8).fill_(2)
    assert (one.tolist(), other.tolist()) == ([1.0] * 8, [2.0] * 8)

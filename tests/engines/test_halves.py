"""Two halves side by side: their order, their threads, and what goes wrong in one of them."""

import threading

import pytest
import torch

from strop.engines.local.halves import side_by_side


def test_results_come_in_the_order_of_the_halves_and_both_run_at_once() -> None:
    met = threading.Barrier(2, timeout=60)

    def work(half: int) -> int:
        met.wait()
        return half * 10

    assert side_by_side(work, [1, 2]) == [10, 20]


def test_one_half_is_done_where_it_is() -> None:
    assert side_by_side(lambda _: threading.current_thread(), [0]) == [threading.current_thread()]


@pytest.mark.parametrize("gradients", [True, False])
def test_halves_record_gradients_as_the_caller_does(gradients: bool) -> None:
    with torch.set_grad_enabled(gradients):
        assert side_by_side(lambda _: torch.is_grad_enabled(), [0, 1]) == [gradients, gradients]
    with torch.inference_mode():
        assert side_by_side(lambda _: torch.is_inference_mode_enabled(), [0, 1]) == [True, True]


def test_the_threads_of_the_caller_stay_as_many() -> None:
    before = torch.get_num_threads()
    each = side_by_side(lambda _: torch.get_num_threads(), [0, 1])
    assert torch.get_num_threads() == before
    assert sum(each) <= max(before, 2)


def test_an_error_in_one_half_is_the_callers() -> None:
    def work(half: int) -> int:
        return 1 // half

    with pytest.raises(ZeroDivisionError):
        side_by_side(work, [1, 0])

"""Two halves of a pass side by side, each on half of the processor's threads.

The operations of a small model are too short to be shared among threads: at each of them the threads wait for
one another, and in between only one works. Two passes that never meet keep two cores busy.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import TypeVar

import torch

Half = TypeVar("Half")
Result = TypeVar("Result")


def side_by_side(work: Callable[[Half], Result], halves: Sequence[Half]) -> list[Result]:
    """`work` of each half, in their order; two are done at once, however many there are.

    How many threads a half has changes how its sums are rounded, so it does not hang on the load.
    """
    if len(halves) == 1:
        return [work(halves[0])]
    inference, gradients = torch.is_inference_mode_enabled(), torch.is_grad_enabled()

    def one(half: Half) -> Result:
        with torch.inference_mode(inference), torch.set_grad_enabled(gradients):
            return work(half)

    return list(_workers().map(one, halves))


@lru_cache(maxsize=1)
def _workers() -> ThreadPoolExecutor:
    threads = max(1, torch.get_num_threads() // 2)
    return ThreadPoolExecutor(2, "strop-half", initializer=torch.set_num_threads, initargs=(threads,))

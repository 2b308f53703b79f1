"""The learning rate's shapes, by hand."""

import math

import pytest

from strop.engines.local.learning_rate import Schedule, Shape


@pytest.mark.parametrize(
    ("shape", "warmup", "expected"),
    [
        ("constant", 0, [1, 1, 1, 1, 1]),
        ("constant", 2, [0.5, 1, 1, 1, 1]),
        ("linear", 0, [1, 0.8, 0.6, 0.4, 0.2]),
        ("linear", 2, [0.5, 1, 1, 2 / 3, 1 / 3]),
        # (1 + cos(pi k / 5)) / 2
        ("cosine", 0, [(1 + math.cos(math.pi * k / 5)) / 2 for k in range(5)]),
        ("cosine", 2, [0.5, 1, 1, 0.75, 0.25]),
    ],
)
def test_five_updates(shape: Shape, warmup: int, expected: list[float]) -> None:
    schedule = Schedule(shape=shape, warmup=warmup, updates=5)
    assert [schedule.share(made) for made in range(5)] == pytest.approx(expected)


@pytest.mark.parametrize("shape", ["linear", "cosine"])
def test_every_update_of_the_run_counts_and_none_after_it(shape: Shape) -> None:
    schedule = Schedule(shape=shape, warmup=3, updates=40)
    shares = [schedule.share(made) for made in range(40)]
    assert min(shares) > 0
    assert max(shares) == 1.0
    assert schedule.share(40) == schedule.share(1000) == 0.0


def test_a_warm_up_longer_than_the_run_only_rises() -> None:
    schedule = Schedule(shape="cosine", warmup=10, updates=4)
    assert [schedule.share(made) for made in range(4)] == pytest.approx([0.1, 0.2, 0.3, 0.4])

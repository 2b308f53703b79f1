"""What a swap shows of a judge, against hand counts and judges of known bias."""

import numpy as np
import pytest
from scipy.stats import binomtest

from strop.errors import InputError
from strop.stats.swaps import SwapCheck, SwappedPair, swap_check


def check(*choices: tuple[int | None, int | None, int | None]) -> SwapCheck:
    pairs = [SwappedPair(forward=f, backward=b, truth=t) for f, b, t in choices]
    return swap_check(pairs, np.random.default_rng(0), 400)


def test_counts_by_hand() -> None:
    found = check((0, 0, 0), (0, 1, 0), (1, 1, 0), (1, 0, 1), (0, 0, None))
    assert found.accuracy.estimate == (2 + 1 + 0 + 1) / 8
    assert (found.accuracy.n, found.accuracy.clusters, found.accuracy.excluded) == (8, 4, 2)
    assert (found.forward.estimate, found.backward.estimate) == (3 / 4, 1 / 4)
    assert (found.both_right.estimate, found.both_right.excluded) == (1 / 4, 1)
    assert (found.consistency.estimate, found.consistency.n) == (3 / 5, 5)
    # Shown first: item 0 forward, item 1 backward; 1, 2, 1, 0 and 1 of 2 each.
    assert found.first_share.estimate == 5 / 10


def test_the_interval_of_pairs_is_wilsons() -> None:
    found = check(*[(0, 0, 0)] * 7, *[(0, 1, 0)] * 3)
    peer = binomtest(7, 10).proportion_ci(method="wilson")
    assert (found.consistency.low, found.consistency.high) == (
        pytest.approx(peer.low),
        pytest.approx(peer.high),
    )


def test_a_judge_that_always_takes_the_first() -> None:
    found = check(*[(0, 1, 0), (0, 1, 1)] * 5)
    assert (found.accuracy.estimate, found.consistency.estimate) == (0.5, 0)
    assert found.first_share.estimate == 1
    assert found.first_share.low is not None
    assert 0.5 < found.first_share.low < 1


@pytest.mark.parametrize("bias", [0.5, 0.65, 0.8])
def test_a_planted_bias_is_found_within_the_interval(bias: float) -> None:
    rng = np.random.default_rng(1)
    first = rng.random((400, 2)) < bias
    pairs = [(int(not f), int(b), int(t)) for (f, b), t in zip(first, rng.random(400) < 0.5, strict=True)]
    found = check(*pairs).first_share
    assert found.low is not None
    assert found.high is not None
    assert found.low < bias < found.high


def test_choices_that_were_not_made_are_left_out() -> None:
    found = check((None, 0, 0), (1, None, 0), (None, None, 0), (0, 0, 0))
    assert (found.accuracy.estimate, found.accuracy.n, found.accuracy.excluded) == (3 / 4, 4, 4)
    assert (found.consistency.n, found.consistency.excluded) == (1, 3)
    assert (found.forward.estimate, found.forward.n, found.forward.excluded) == (1 / 2, 2, 2)
    assert (found.first_share.estimate, found.first_share.n) == (1 / 4, 4)


def test_nothing_there_gives_reasons_and_no_number() -> None:
    found = check().to_json()
    assert {entry["estimate"] for entry in found.values()} == {None}
    assert all(entry["method"].startswith("none: ") for entry in found.values())


def test_an_item_that_is_not_in_the_pair_is_refused() -> None:
    with pytest.raises(InputError, match="item 2 of a pair"):
        SwappedPair(forward=2, backward=0)

"""The draw: against hand arithmetic, a plain inverse CDF in float64, and the true distribution."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from strop.engines.local.draw import Choice, draw


def one(logits: list[float], **choice: float) -> tuple[int, float]:
    options = {"temperature": 1.0, "top_p": 1.0, "uniform": 0.5, **choice}
    (drawn,) = draw(torch.tensor([logits]), [Choice(**options)])
    assert drawn is not None
    return drawn.token, drawn.logprob


QUARTERS = [math.log(0.25), math.log(0.5), math.log(0.25)]


@pytest.mark.parametrize(("uniform", "token"), [(0.0, 0), (0.249, 0), (0.251, 1), (0.749, 1), (0.751, 2)])
def test_inverse_cdf_in_id_order(uniform: float, token: int) -> None:
    drawn, logprob = one(QUARTERS, uniform=uniform)
    assert drawn == token
    assert logprob == pytest.approx(QUARTERS[token], abs=1e-6)


def test_temperature_reshapes_the_distribution_and_the_logprob() -> None:
    # At temperature 0.5 the odds 1:2:1 become 1:4:1.
    assert one(QUARTERS, temperature=0.5, uniform=0.16)[0] == 0
    token, logprob = one(QUARTERS, temperature=0.5, uniform=0.17)
    assert token == 1
    assert logprob == pytest.approx(math.log(4 / 6), abs=1e-6)


def test_greedy_takes_the_first_of_the_most_likely_and_reports_the_untempered_logprob() -> None:
    token, logprob = one([0.0, 2.0, 2.0], temperature=0.0, uniform=0.999)
    assert token == 1
    assert logprob == pytest.approx(2.0 - math.log(1 + 2 * math.e**2), abs=1e-6)


def test_top_p_keeps_the_token_that_crosses_and_normalises_again() -> None:
    logits = [math.log(p) for p in (0.1, 0.5, 0.4)]
    # 0.5 alone does not reach 0.6, so the 0.4 stays: 5/9 and 4/9.
    assert one(logits, top_p=0.6, uniform=0.0) == (1, pytest.approx(math.log(5 / 9), abs=1e-6))
    assert one(logits, top_p=0.6, uniform=0.99) == (2, pytest.approx(math.log(4 / 9), abs=1e-6))
    assert one(logits, top_p=0.01, uniform=0.99) == (1, pytest.approx(0.0, abs=1e-6))


def test_top_logprobs_are_sorted_and_leave_out_what_was_cut() -> None:
    logits = torch.tensor([[math.log(p) for p in (0.1, 0.5, 0.4)]] * 2)
    whole, cut = draw(
        logits,
        [
            Choice(temperature=1.0, top_p=1.0, uniform=0.0, top_logprobs=2),
            Choice(temperature=1.0, top_p=0.5, uniform=0.0, top_logprobs=2),
        ],
    )
    assert whole is not None
    assert cut is not None
    assert [token for token, _ in whole.top] == [1, 2]
    assert whole.top[1][1] == pytest.approx(math.log(0.4), abs=1e-6)
    assert [token for token, _ in cut.top] == [1]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_row_that_is_not_finite_is_refused_and_the_others_are_not(bad: float) -> None:
    choice = Choice(temperature=1.0, top_p=1.0, uniform=0.5)
    broken, fine = draw(torch.tensor([[0.0, bad, 1.0], [0.0, 1.0, 2.0]]), [choice, choice])
    assert broken is None
    assert fine is not None


def test_two_level_search_equals_a_plain_one() -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 3, (400, 1000)).astype(np.float32)
    uniforms = rng.random(400)
    choices = [Choice(temperature=1.0, top_p=1.0, uniform=u) for u in uniforms]
    drawn = draw(torch.from_numpy(logits.copy()), choices)
    masses = np.exp(logits.astype(np.float64) - logits.max(1, keepdims=True))
    cdf = masses.cumsum(1) / masses.sum(1, keepdims=True)
    expected = (cdf <= uniforms[:, None]).sum(1)
    assert [row.token for row in drawn if row is not None] == expected.tolist()


@pytest.mark.parametrize("uniform", [0.0, float(np.nextafter(1.0, 0.0))])
def test_the_ends_of_the_unit_interval_fall_on_tokens_with_mass(uniform: float) -> None:
    # 300 tokens over three blocks, of which only two in the middle block can be drawn.
    logits = [-math.inf] * 300
    logits[140] = logits[150] = 0.0
    assert one(logits, uniform=uniform)[0] == (140 if uniform == 0.0 else 150)


def test_frequencies_follow_the_distribution() -> None:
    weights = np.array([0.05, 0.2, 0.1, 0.3, 0.02, 0.33])
    count = 20_000
    uniforms = np.random.default_rng(1).random(count)
    logits = torch.tensor(np.log(weights), dtype=torch.float32).repeat(count, 1)
    drawn = draw(logits, [Choice(temperature=1.0, top_p=1.0, uniform=u) for u in uniforms])
    seen = np.bincount([row.token for row in drawn if row is not None], minlength=6)
    assert stats.chisquare(seen, weights * count).pvalue > 0.001

"""A token's loss: clips, KL estimates, importance weights, and what must never become inf or nan."""

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from strop.engines.local.losses.kl import kl_estimate
from strop.engines.local.losses.ratio import probability_ratio, sequence_ratio
from strop.engines.local.losses.token_loss import token_loss
from strop.engines.local.losses.tokens import LossSettings, TokenLoss, Tokens

pytestmark = pytest.mark.usefixtures("one_thread")

OLD = torch.tensor([-1.0, -1, -1, -1, -1, -1, -3], dtype=torch.float64)
RATIO = torch.tensor([0.5, 1, 1.5, 1.1, 0.7, 1.25, 10], dtype=torch.float64)
ADVANTAGE = torch.tensor([1.0] * 4 + [-1.0] * 3, dtype=torch.float64)
PLAIN: dict[str, Any] = {"clip_low": 0.2, "clip_high": 0.2, "dual_clip": None, "tis_cap": None}
DUAL = {**PLAIN, "dual_clip": 3.0}


def lose(
    policy: Tensor,
    old: Tensor,
    advantage: Tensor,
    settings: LossSettings,
    *,
    sampler: Tensor | None = None,
    reference: Tensor | None = None,
) -> TokenLoss:
    """The loss of tokens that are all of one row; the sampler was the old policy unless given."""
    tokens = Tokens(
        policy=policy,
        old=old,
        sampler=old if sampler is None else sampler,
        reference=reference,
        advantage=advantage,
        lengths=[len(policy)],
    )
    return token_loss(tokens, settings)


def test_skyrl_dual_clip() -> None:
    """SkyRL's own unit test: sum 12.5 (A = 1, -1, -4; ratio 0.5, 1, 10; c = 3)."""
    old = torch.tensor([-1.0, -1.0, -3.0])
    new = torch.tensor([-1.69315, -1.0, -0.69741])
    advantage = torch.tensor([1.0, -1.0, -4.0])
    loss = lose(new, old, advantage, LossSettings(**DUAL)).loss
    assert float(loss.sum()) == pytest.approx(12.5, abs=1e-4)


def test_nemo_clipping() -> None:
    """NeMo's own unit test: mean -0.6333 (A = 1, -1, 2; ratio 0.5, 1, 1.5)."""
    old = torch.full((3,), -1.0)
    new = old + torch.tensor([0.5, 1.0, 1.5]).log()
    advantage = torch.tensor([1.0, -1.0, 2.0])
    loss = lose(new, old, advantage, LossSettings(**PLAIN)).loss
    assert float(loss.mean()) == pytest.approx(-0.6333, abs=1e-4)


def test_clipped_tokens_are_those_without_a_gradient() -> None:
    policy = (OLD + RATIO.log()).requires_grad_()
    result = lose(policy, OLD, ADVANTAGE, LossSettings(**DUAL))
    (gradient,) = torch.autograd.grad(result.loss.sum(), policy)
    assert result.clipped.tolist() == (gradient == 0).tolist()
    assert result.clipped.tolist() == [False, False, True, False, True, False, True]
    torch.testing.assert_close(result.ratio, RATIO)


LOGPROBS = [-1.0, -2, -0.5, -3, -0.1, -30]
REFERENCE = [-1.2, -1.5, -0.5, -2, -5, -0.1]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("k1", [0.2, -0.5, 0, -1, 4.9, -29.9]),
        ("k2", [0.02, 0.125, 0, 0.5, 12.005, 447.005]),
        # Peers clamp the last at 10 or not at all (9.67e12); here it is e^20 - 21.
        ("k3", [0.018731, 0.148721, 0, 0.718282, 3.907447, math.exp(20) - 21]),
    ],
)
def test_kl_estimates(kind: str, expected: Sequence[float]) -> None:
    policy = torch.tensor(LOGPROBS, dtype=torch.float64)
    reference = torch.tensor(REFERENCE, dtype=torch.float64)
    got = kl_estimate(policy, reference, kind)  # type: ignore[arg-type]
    assert got.tolist() == pytest.approx(expected, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize(("kind", "slope"), [("k1", [1.0] * 3), ("k2", [-1.0, 0.0, 2.0])])
def test_kl_slopes(kind: str, slope: list[float]) -> None:
    difference = torch.tensor([-1.0, 0.0, 2.0], requires_grad=True)
    (got,) = torch.autograd.grad(kl_estimate(difference, torch.zeros(3), kind).sum(), difference)  # type: ignore[arg-type]
    assert got.tolist() == pytest.approx(slope)


def test_t40_k3_is_finite_where_peers_overflow() -> None:
    """TRL at log π = -100 against 0: value inf, gradient -inf."""
    policy = torch.tensor([-100.0], requires_grad=True)
    value = kl_estimate(policy, torch.zeros(1), "k3")
    (gradient,) = torch.autograd.grad(value.sum(), policy)
    assert torch.isfinite(value).all()
    assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("distance", [1.0, 19.0, 21.0, 500.0])
def test_k3_pulls_back_however_far_the_policy_went(distance: float) -> None:
    """1 - exp(-d), by hand: towards 1, and never to nothing, where the policy is the likelier one."""
    policy = torch.tensor([distance], requires_grad=True)
    value = kl_estimate(policy, torch.zeros(1), "k3")
    (gradient,) = torch.autograd.grad(value.sum(), policy)
    assert float(gradient) == pytest.approx(1 - math.exp(-distance), rel=1e-6)
    assert float(value.detach()) == pytest.approx(math.exp(-distance) - 1 + distance, rel=1e-6)


def test_k3_of_a_small_difference_keeps_its_digits_in_float32() -> None:
    """d²/2 to first order; exp(-d) - 1 + d computed as written gives 0 or a negative number here."""
    difference = torch.tensor([1e-4, -1e-4, 3e-5], dtype=torch.float32)
    got = kl_estimate(difference, torch.zeros(3), "k3")
    assert got.tolist() == pytest.approx([5e-9, 5e-9, 4.5e-10], rel=0.01)


SURROGATES = ["clipped", "sequence_clipped", "capped_weight"]


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("advantage", [1.0, -1.0, 0.0])
@pytest.mark.parametrize("difference", [200.0, -200.0, 1e30])
@pytest.mark.parametrize("dual_clip", [3.0, None])
def test_t21_no_finite_input_makes_an_inf(
    surrogate: Any, advantage: float, difference: float, dual_clip: float | None
) -> None:
    """A masked column with log-ratio 200 made inf · 0 = NaN elsewhere. Here no masked token gets this far."""
    policy = torch.tensor([difference, -1.0], requires_grad=True)
    start = torch.tensor([0.0, -1.0])
    settings = LossSettings(surrogate=surrogate, dual_clip=dual_clip, kl_coef=0.1)
    result = lose(policy, start, torch.tensor([advantage, 1.0]), settings, reference=start)
    (gradient,) = torch.autograd.grad(result.loss.sum(), policy)
    assert torch.isfinite(result.loss).all()
    assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_x41_an_advantage_of_zero_has_no_gradient_but_the_kl_has(surrogate: Any) -> None:
    policy = torch.tensor([-1.0, -2.0], requires_grad=True)
    old, reference = torch.tensor([-1.5, -1.5]), torch.tensor([-1.0, -1.0])
    quiet, pulled = (
        lose(
            policy,
            old,
            torch.zeros(2),
            LossSettings(surrogate=surrogate, kl_coef=beta),
            reference=reference,
        ).loss.sum()
        for beta in (0.0, 0.5)
    )
    assert torch.autograd.grad(quiet, policy)[0].tolist() == [0.0, 0.0]
    # 0.5 (1 - exp(-d)) with d = 0, -1
    assert torch.autograd.grad(pulled, policy)[0].tolist() == pytest.approx([0.0, 0.5 * (1 - math.e)])


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_truncated_importance_weight(surrogate: Any) -> None:
    """Weights min(exp(old - sampler), 2): 1/e, 1, 2 for 7.4. They scale; no gradient flows through them."""
    sampler = OLD - torch.tensor([-1.0, 0, 2, 0, 0, 2, 0], dtype=torch.float64)
    weight = torch.tensor([math.exp(-1), 1, 2, 1, 1, 2, 1], dtype=torch.float64)
    policy = (OLD + RATIO.log()).requires_grad_()
    plain = LossSettings(**PLAIN, surrogate=surrogate)
    capped = LossSettings(**{**PLAIN, "tis_cap": 2.0}, surrogate=surrogate)
    without = lose(policy, OLD, ADVANTAGE, plain, sampler=sampler).loss
    with_weights = lose(policy, OLD, ADVANTAGE, capped, sampler=sampler).loss
    torch.testing.assert_close(with_weights, weight * without)
    (slope,) = torch.autograd.grad(without.sum(), policy)
    (slopes,) = torch.autograd.grad(with_weights.sum(), policy)
    torch.testing.assert_close(slopes, weight * slope)
    if surrogate == "clipped":
        expected = -0.5 / math.e - 1 - 2.4 - 1.1 + 0.8 + 2.5 + 10
        assert float(with_weights.detach().sum()) == pytest.approx(expected)


def test_cispo_silences_no_token_and_clips_the_weight_only() -> None:
    """Gradients -w A with w in [0.8, 1.2], by hand; PPO's clip has zeros there."""
    policy = (OLD + RATIO.log()).requires_grad_()
    result = lose(policy, OLD, ADVANTAGE, LossSettings(**PLAIN, surrogate="capped_weight"))
    (gradient,) = torch.autograd.grad(result.loss.sum(), policy)
    assert gradient.tolist() == pytest.approx([-0.8, -1, -1.2, -1.1, 0.8, 1.2, 1.2])
    assert result.clipped.tolist() == [True, False, True, False, True, True, True]
    torch.testing.assert_close(result.ratio, RATIO)


def test_x44_a_sequence_s_ratio_is_the_geometric_mean_and_no_product() -> None:
    """(0.5 · 1 · 1.5 · 1.1)^(1/4) and (0.7 · 1.25 · 10)^(1/3); their products are 0.825 and 8.75."""
    got = sequence_ratio(OLD + RATIO.log(), OLD, [4, 3])
    assert got.tolist() == pytest.approx([0.825**0.25] * 4 + [8.75 ** (1 / 3)] * 3)


def test_a_sequence_s_ratio_does_not_grow_with_its_length() -> None:
    for length in (1, 10, 1000):
        got = sequence_ratio(torch.full((length,), -0.9), torch.full((length,), -1.0), [length])
        assert got.tolist() == pytest.approx([math.exp(0.1)] * length, rel=1e-5)


def test_x43_on_policy_the_loss_is_zero_and_the_gradient_is_not() -> None:
    """Ratio 1 and advantages that sum to 0: the loss says nothing, each token's gradient is -A."""
    policy = torch.tensor([-1.0, -2.0, -3.0], requires_grad=True)
    advantage = torch.tensor([1.0, -0.25, -0.75])
    loss = lose(policy, policy.detach(), advantage, LossSettings()).loss.sum()
    assert float(loss.detach()) == 0.0
    assert torch.autograd.grad(loss, policy)[0].tolist() == [-1.0, 0.25, 0.75]


def test_ratios() -> None:
    got = probability_ratio(torch.log(torch.tensor([0.2, 0.3])), torch.log(torch.tensor([0.1, 0.6])))
    assert got.tolist() == pytest.approx([2.0, 0.5])
    far = probability_ratio(torch.tensor([500.0, -500.0]), torch.zeros(2))
    assert far.tolist() == pytest.approx([math.exp(20), math.exp(-20)])

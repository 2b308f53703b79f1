"""The token losses against numbers measured on peers' code (TRL, verl, NeMo, SkyRL), values and gradients."""

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from strop.engines.local.loss import LossSettings, TokenLogProbs, grpo, kl_estimate, probability_ratio

pytestmark = pytest.mark.usefixtures("one_thread")

OLD = torch.tensor([-1.0, -1, -1, -1, -1, -1, -3], dtype=torch.float64)
RATIO = torch.tensor([0.5, 1, 1.5, 1.1, 0.7, 1.25, 10], dtype=torch.float64)
ADVANTAGE = torch.tensor([1.0] * 4 + [-1.0] * 3, dtype=torch.float64)
PLAIN: dict[str, Any] = {"clip_low": 0.2, "clip_high": 0.2, "dual_clip": None, "tis_cap": None}
DUAL = {**PLAIN, "dual_clip": 3.0}
FIRST = [-0.071429, -0.142857, 0, -0.157143]


def run(
    settings: LossSettings, reference: Tensor | None = None, sampler: Tensor | None = None
) -> tuple[float, list[float]]:
    """Token-mean loss over the seven unmasked tokens, and its gradient by their log-probs."""
    policy = (OLD + RATIO.log()).requires_grad_()
    sampled = OLD if sampler is None else sampler
    loss = grpo(TokenLogProbs(policy, OLD, sampled, reference), ADVANTAGE, settings).loss.mean()
    (gradient,) = torch.autograd.grad(loss, policy)
    return float(loss.detach()), gradient.tolist()


@pytest.mark.parametrize(
    ("change", "loss", "gradient"),
    [
        ({}, 1.178571, [*FIRST, 0, 0.178571, 1.428571]),
        ({"dual_clip": 3.0}, 0.178571, [*FIRST, 0, 0.178571, 0]),
        ({"clip_high": 0.28}, 1.167143, [*FIRST, 0, 0.178571, 1.428571]),
    ],
)
def test_peers_token_mean(change: dict[str, float], loss: float, gradient: list[float]) -> None:
    """TRL's dapo and bnpo, verl's vanilla with c = 1e9 and with c = 3, and clip-higher."""
    got, slope = run(LossSettings(**{**PLAIN, **change}))
    assert got == pytest.approx(loss, abs=1e-6)
    assert slope == pytest.approx(gradient, abs=1e-6)


def test_peers_token_mean_with_kl() -> None:
    """TRL's dapo with beta 0.1, the reference being the old policy."""
    got, slope = run(LossSettings(**PLAIN, kl_coef=0.1, kl="k3"), reference=OLD)
    assert got == pytest.approx(1.205443, abs=1e-6)
    expected = [-0.085714, -0.142857, 0.004762, -0.155844, -0.006122, 0.181429, 1.441429]
    assert slope == pytest.approx(expected, abs=1e-6)


def test_skyrl_dual_clip() -> None:
    """SkyRL's own unit test: sum 12.5 (A = 1, -1, -4; ratio 0.5, 1, 10; c = 3)."""
    old = torch.tensor([-1.0, -1.0, -3.0])
    new = torch.tensor([-1.69315, -1.0, -0.69741])
    advantage = torch.tensor([1.0, -1.0, -4.0])
    loss = grpo(TokenLogProbs(new, old, old, None), advantage, LossSettings(**DUAL)).loss
    assert float(loss.sum()) == pytest.approx(12.5, abs=1e-4)


def test_nemo_clipping() -> None:
    """NeMo's own unit test: mean -0.6333 (A = 1, -1, 2; ratio 0.5, 1, 1.5)."""
    old = torch.full((3,), -1.0)
    new = old + torch.tensor([0.5, 1.0, 1.5]).log()
    advantage = torch.tensor([1.0, -1.0, 2.0])
    loss = grpo(TokenLogProbs(new, old, old, None), advantage, LossSettings(**PLAIN)).loss
    assert float(loss.mean()) == pytest.approx(-0.6333, abs=1e-4)


def test_clipped_tokens_are_those_without_a_gradient() -> None:
    policy = (OLD + RATIO.log()).requires_grad_()
    result = grpo(TokenLogProbs(policy, OLD, OLD, None), ADVANTAGE, LossSettings(**DUAL))
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


def test_k3_is_finite_where_peers_overflow() -> None:
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


@pytest.mark.parametrize("advantage", [1.0, -1.0, 0.0])
@pytest.mark.parametrize("difference", [200.0, -200.0, 1e30])
@pytest.mark.parametrize("dual_clip", [3.0, None])
def test_no_finite_input_makes_an_inf(advantage: float, difference: float, dual_clip: float | None) -> None:
    """A masked column with log-ratio 200 made inf · 0 = NaN elsewhere."""
    policy = torch.tensor([difference, -1.0], requires_grad=True)
    start = torch.tensor([0.0, -1.0])
    logprobs = TokenLogProbs(policy, start, start, start)
    settings = LossSettings(dual_clip=dual_clip, kl_coef=0.1)
    result = grpo(logprobs, torch.tensor([advantage, 1.0]), settings)
    (gradient,) = torch.autograd.grad(result.loss.sum(), policy)
    assert torch.isfinite(result.loss).all()
    assert torch.isfinite(gradient).all()


def test_an_advantage_of_zero_has_no_gradient_but_the_kl_has() -> None:
    policy = torch.tensor([-1.0, -2.0], requires_grad=True)
    old, reference = torch.tensor([-1.5, -1.5]), torch.tensor([-1.0, -1.0])
    quiet, pulled = (
        grpo(
            TokenLogProbs(policy, old, old, reference), torch.zeros(2), LossSettings(kl_coef=beta)
        ).loss.sum()
        for beta in (0.0, 0.5)
    )
    assert torch.autograd.grad(quiet, policy)[0].tolist() == [0.0, 0.0]
    # 0.5 (1 - exp(-d)) with d = 0, -1
    assert torch.autograd.grad(pulled, policy)[0].tolist() == pytest.approx([0.0, 0.5 * (1 - math.e)])


def test_truncated_importance_weight() -> None:
    """Weights min(exp(old - sampler), 2): 1/e, 1, 2 for 7.4. They scale; no gradient flows through them."""
    sampler = OLD - torch.tensor([-1.0, 0, 2, 0, 0, 2, 0], dtype=torch.float64)
    plain, slope = run(LossSettings(**PLAIN))
    weighted, slopes = run(LossSettings(**{**PLAIN, "tis_cap": 2.0}), sampler=sampler)
    weight = [math.exp(-1), 1, 2, 1, 1, 2, 1]
    assert slopes == pytest.approx([w * s for w, s in zip(weight, slope, strict=True)])
    # token losses without weights: -0.5, -1, -1.2, -1.1, 0.8, 1.25, 10
    assert plain * 7 == pytest.approx(8.25)
    assert weighted * 7 == pytest.approx(-0.5 / math.e - 1 - 2.4 - 1.1 + 0.8 + 2.5 + 10)


def test_ratios() -> None:
    got = probability_ratio(torch.log(torch.tensor([0.2, 0.3])), torch.log(torch.tensor([0.1, 0.6])))
    assert got.tolist() == pytest.approx([2.0, 0.5])
    far = probability_ratio(torch.tensor([500.0, -500.0]), torch.zeros(2))
    assert far.tolist() == pytest.approx([math.exp(20), math.exp(-20)])

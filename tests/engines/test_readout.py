"""The chunked read-out against the plain formula on the full [n, V] logits."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from strop.engines.local.head import Head
from strop.engines.local.readout import CHUNK, read_out, target_logprobs

pytestmark = pytest.mark.usefixtures("one_thread")

WIDTH, VOCABULARY = 16, 40


def inputs(count: int, dtype: torch.dtype = torch.float32, spread: float = 1.0) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(count)
    hidden = spread * torch.randn(count, WIDTH, generator=generator)
    head = torch.randn(VOCABULARY, WIDTH, generator=generator)
    target = torch.randint(VOCABULARY, (count,), generator=generator)
    temperature = 0.4 + torch.rand(count, generator=generator)
    return hidden.to(dtype), head.to(dtype), target, temperature


def plainly(hidden: Tensor, head: Tensor, target: Tensor, temperature: Tensor) -> Tensor:
    logits = (hidden @ head.T).float() / temperature[:, None]
    return torch.log_softmax(logits, dim=1).gather(1, target[:, None])[:, 0]


@pytest.mark.parametrize("count", [1, 5, CHUNK, 2 * CHUNK + 1])
def test_log_probs_and_gradient_are_those_of_the_plain_formula(count: int) -> None:
    hidden, head, target, temperature = inputs(count)
    ours, theirs = hidden.clone().requires_grad_(), hidden.clone().requires_grad_()
    got, expected = (
        target_logprobs(ours, Head(weight=head), target, temperature)[0],
        plainly(theirs, head, target, temperature),
    )
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)
    weights = torch.randn(count, generator=torch.Generator().manual_seed(1))
    (got * weights).sum().backward()
    (expected * weights).sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-5)


def test_gradient_by_finite_differences() -> None:
    hidden, head, target, temperature = inputs(3)
    hidden = hidden.requires_grad_()
    (gradient,) = torch.autograd.grad(
        target_logprobs(hidden, Head(weight=head), target, temperature)[0].sum(), hidden
    )
    exact = hidden.detach().double()
    for column in range(WIDTH):
        nudge = torch.zeros_like(exact)
        nudge[:, column] = 1e-4
        above, below = (
            torch.log_softmax((exact + s * nudge) @ head.double().T / temperature.double()[:, None], 1)
            .gather(1, target[:, None])
            .squeeze(1)
            for s in (1, -1)
        )
        np.testing.assert_allclose(gradient[:, column], (above - below) / 2e-4, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("cap", "scale"), [(5.0, 1.0), (None, 0.25), (3.0, 2.0)])
def test_capped_and_scaled_logits_by_autograd_of_the_formula(cap: float | None, scale: float) -> None:
    """cap · tanh(scale · W h / cap), Gemma 2's final soft cap and Granite's scale, before the temperature."""
    hidden, weight, target, temperature = inputs(CHUNK + 3)
    ours, theirs = hidden.clone().requires_grad_(), hidden.clone().double().requires_grad_()
    head = Head(weight=weight, cap=cap, scale=scale)
    raw = theirs @ weight.double().T * scale
    logits = raw if cap is None else cap * torch.tanh(raw / cap)
    logp = torch.log_softmax(logits / temperature.double()[:, None], dim=1)
    expected = logp.gather(1, target[:, None])[:, 0]
    got, entropy = target_logprobs(ours, head, target, temperature)
    torch.testing.assert_close(got.double(), expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(entropy.double(), -(logp.exp() * logp).sum(1), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(read_out(hidden, head, target, temperature)[:, 0], got.detach())
    got.sum().backward()
    expected.sum().backward()
    torch.testing.assert_close(ours.grad.double(), theirs.grad, rtol=1e-4, atol=1e-4)


def test_the_same_position_may_be_asked_for_twice() -> None:
    hidden, head, target, temperature = inputs(4)
    source = hidden.clone().requires_grad_()
    index = torch.tensor([0, 2, 2, 0, 1])
    out, _ = target_logprobs(source[index], Head(weight=head), target[index], temperature[index])
    (gradient,) = torch.autograd.grad(out.sum(), source)
    plain = hidden.clone().requires_grad_()
    (expected,) = torch.autograd.grad(
        plainly(plain[index], head, target[index], temperature[index]).sum(), plain
    )
    torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-5)
    assert gradient[3].tolist() == [0.0] * WIDTH


def test_bfloat16_weights_are_read_in_float32() -> None:
    hidden, head, target, temperature = inputs(50, torch.bfloat16)
    got, _ = target_logprobs(hidden, Head(weight=head), target, temperature)
    assert got.dtype == torch.float32
    torch.testing.assert_close(got, plainly(hidden, head, target, temperature), rtol=1e-4, atol=1e-4)


def test_extreme_logits_stay_finite() -> None:
    hidden, head, target, temperature = inputs(20, spread=300.0)
    hidden = hidden.requires_grad_()
    out, entropy = target_logprobs(hidden, Head(weight=head), target, temperature)
    (gradient,) = torch.autograd.grad(out.sum(), hidden)
    assert torch.isfinite(out).all()
    assert torch.isfinite(entropy).all()
    assert torch.isfinite(gradient).all()
    assert (out <= 0).all()


def test_nothing_asked_nothing_given() -> None:
    hidden, head, target, temperature = inputs(0)
    out, entropy = target_logprobs(hidden.requires_grad_(), Head(weight=head), target, temperature)
    assert out.shape == entropy.shape == (0,)
    assert read_out(hidden, Head(weight=head), target, temperature).shape == (0, 4)
    assert torch.autograd.grad(out.sum(), hidden)[0].shape == (0, WIDTH)


@pytest.mark.parametrize("count", [1, CHUNK + 3])
@pytest.mark.parametrize(
    ("dtype", "most", "mean"), [(torch.float32, 1e-4, 1e-5), (torch.bfloat16, 0.2, 0.02)]
)
def test_the_entropy_beside_the_log_probs_is_that_of_the_read_out(
    count: int, dtype: torch.dtype, most: float, mean: float
) -> None:
    """And is a number only: nothing flows back from it. In bfloat16 single ones are off by rounding."""
    hidden, head, target, temperature = inputs(count, dtype)
    _, entropy = target_logprobs(hidden.clone().requires_grad_(), Head(weight=head), target, temperature)
    apart = entropy - read_out(hidden, Head(weight=head), target, temperature)[:, 1]
    assert float(apart.abs().max()) < most
    assert float(apart.mean().abs()) < (mean if count > 1 else most)
    assert not entropy.requires_grad


def test_without_a_gradient_the_entropy_is_unknown() -> None:
    hidden, head, target, temperature = inputs(3)
    out, entropy = target_logprobs(hidden, Head(weight=head), target, temperature)
    assert torch.isfinite(out).all()
    assert torch.isnan(entropy).all()


@pytest.mark.parametrize("count", [7, CHUNK + 3])
def test_read_out_by_brute_force(count: int) -> None:
    hidden, head, target, temperature = inputs(count)
    got = read_out(hidden, Head(weight=head), target, temperature).tolist()
    logits = hidden.double().numpy() @ head.double().numpy().T / temperature.double().numpy()[:, None]
    for row, token, out in zip(logits, target.tolist(), got, strict=True):
        p = [math.exp(x - max(row)) for x in row]
        logp = [math.log(x / sum(p)) for x in p]
        entropy = -sum(math.exp(x) * x for x in logp)
        # KL(uniform || p) written out
        certainty = sum(1 / VOCABULARY * (math.log(1 / VOCABULARY) - x) for x in logp)
        top = sum(sorted(logp)[-20:]) / 20
        assert out == pytest.approx([logp[token], entropy, certainty, top], rel=1e-4, abs=1e-4)


def test_read_out_of_a_uniform_distribution() -> None:
    """log 1/V, log V nats, certainty 0, and the top tokens are as likely as any."""
    _, head, target, temperature = inputs(2)
    (got, _) = read_out(torch.zeros(2, WIDTH), Head(weight=head), target, temperature).tolist()
    log_v = math.log(VOCABULARY)
    assert got == pytest.approx([-log_v, log_v, 0.0, -log_v], abs=1e-5)


def test_a_vocabulary_below_twenty_is_averaged_whole() -> None:
    hidden, head, target, temperature = inputs(3)
    small = head[:6]
    got = read_out(hidden, Head(weight=small), target % 6, temperature)[:, 3]
    logp = torch.log_softmax(hidden @ small.T / temperature[:, None], 1)
    torch.testing.assert_close(got, logp.mean(1), rtol=1e-5, atol=1e-5)

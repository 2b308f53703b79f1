"""GRPO's token loss: clipped surrogate on sampled tokens, KL to the reference, importance correction.

Formulas as in the papers: PPO's clip (1707.06347), GRPO (2402.03300), clip-higher (DAPO,
2503.14476), dual clip (1912.09729), KL estimators k1, k2, k3 (Schulman's note), truncated
importance sampling against the sampler's own log-probs (2308 onwards). Pure functions on tensors.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

KLKind = Literal["k1", "k2", "k3"]
MAX_EXPONENT = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LossSettings:
    """`clip_low`, `clip_high` bound the ratio to [1 - low, 1 + high]; `dual_clip` > 1 bounds the loss of
    tokens with negative advantage (None: off); `kl_coef` weighs the KL estimate `kl`; `tis_cap` caps
    the importance weight between learner and sampler (None: off).
    """

    clip_low: float = 0.2
    clip_high: float = 0.28
    dual_clip: float | None = 3.0
    kl_coef: float = 0.0
    kl: KLKind = "k3"
    tis_cap: float | None = 2.0


class TokenLoss(NamedTuple):
    """Per token, all [n]: the loss, the ratio to the old policy, whether the clip was active, the KL."""

    loss: Tensor
    ratio: Tensor
    clipped: Tensor
    kl: Tensor


class TokenLogProbs(NamedTuple):
    """Per sampled token, all [n]: under the policy in training, the policy that this update started
    from, the sampler, and the reference (None where no KL is asked for)."""

    policy: Tensor
    old: Tensor
    sampler: Tensor
    reference: Tensor | None


def grpo(logprobs: TokenLogProbs, advantages: Tensor, settings: LossSettings) -> TokenLoss:
    """-min(r A, clip(r) A), dual clip, times min(exp(old - sampler), cap), plus kl_coef · KL.

    `advantages` [n], one a token. Exponents are clamped to ±20, so that no finite input makes an inf.
    """
    ratio = probability_ratio(logprobs.policy, logprobs.old)
    bounded = ratio.clamp(1 - settings.clip_low, 1 + settings.clip_high)
    surrogate = torch.minimum(ratio * advantages, bounded * advantages)
    clipped = ratio * advantages > bounded * advantages
    if settings.dual_clip is not None:
        floor = settings.dual_clip * advantages
        clipped = clipped | ((advantages < 0) & (surrogate < floor))
        surrogate = torch.where(advantages < 0, torch.maximum(surrogate, floor), surrogate)
    if settings.tis_cap is not None:
        weight = probability_ratio(logprobs.old, logprobs.sampler).clamp(max=settings.tis_cap)
        surrogate = surrogate * weight.detach()
    kl = torch.zeros_like(ratio)
    if logprobs.reference is not None:
        kl = kl_estimate(logprobs.policy, logprobs.reference, settings.kl)
    return TokenLoss(-surrogate + settings.kl_coef * kl, ratio, clipped, kl)


def kl_estimate(policy: Tensor, reference: Tensor, kind: KLKind) -> Tensor:
    """k1 = d, k2 = d²/2, k3 = exp(-d) - 1 + d with d = log π - log π_ref of the sampled token.

    k3 sees d at no less than -20: below that its value stays, and its gradient is 0. Above there is no
    bound, as nothing overflows where the policy is the likelier one, and the pull back must last.
    """
    difference = policy - reference
    if kind == "k1":
        return difference
    if kind == "k2":
        return difference.square() / 2
    # expm1, since exp(-d) - 1 loses all digits of a small d in float32 and k3 would turn negative.
    bounded = difference.clamp(min=-MAX_EXPONENT)
    return torch.expm1(-bounded) + bounded


def probability_ratio(logprobs: Tensor, others: Tensor) -> Tensor:
    """p / q from log p and log q, [n]. The exponent is clamped to ±20, where its gradient ends too."""
    return (logprobs - others).clamp(-MAX_EXPONENT, MAX_EXPONENT).exp()

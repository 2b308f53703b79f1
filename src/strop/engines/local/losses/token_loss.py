"""The loss of each sampled token: surrogate, importance weight, KL to the reference."""

import torch

from strop.engines.local.losses.kl import kl_estimate
from strop.engines.local.losses.ratio import truncated_weight
from strop.engines.local.losses.surrogates import SURROGATES
from strop.engines.local.losses.tokens import LossSettings, TokenLoss, Tokens


def token_loss(tokens: Tokens, settings: LossSettings) -> TokenLoss:
    """-surrogate · min(exp(old - sampler), tis_cap) + kl_coef · KL, [n].

    Exponents are clamped to ±20, so that no finite input makes an inf.
    """
    surrogate, ratio, clipped = SURROGATES[settings.surrogate](tokens, settings)
    if settings.tis_cap is not None:
        surrogate = surrogate * truncated_weight(tokens.old, tokens.sampler, settings.tis_cap)
    kl = torch.zeros_like(ratio)
    if tokens.reference is not None:
        kl = kl_estimate(tokens.policy, tokens.reference, settings.kl)
    return TokenLoss(-surrogate + settings.kl_coef * kl, ratio, clipped, kl)

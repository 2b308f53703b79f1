"""Estimates of the KL divergence to the reference from sampled tokens (Schulman's note)."""

import torch
from torch import Tensor

from strop.engines.local.losses.ratio import MAX_EXPONENT
from strop.engines.local.losses.tokens import KLKind


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

"""Surrogates of the policy gradient, by name. Each is what a token adds to the objective."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from strop.config.losses import Surrogate
from strop.engines.local.losses.ratio import probability_ratio, sequence_ratio
from strop.engines.local.losses.tokens import LossSettings, Tokens, Weighed


def clipped(tokens: Tokens, settings: LossSettings) -> Weighed:
    """min(r A, clip(r) A) with r = π / π_old of the token: PPO (1707.06347), GRPO (2402.03300).

    Two bounds that differ are DAPO's clip-higher (2503.14476); `dual_clip` is 1912.09729's.
    """
    return _bounded(probability_ratio(tokens.policy, tokens.old), tokens.advantage, settings)


def sequence_clipped(tokens: Tokens, settings: LossSettings) -> Weighed:
    """The same with the ratio of the whole sequence at each of its tokens: GSPO (2507.18071)."""
    ratio = sequence_ratio(tokens.policy, tokens.old, tokens.lengths)
    return _bounded(ratio, tokens.advantage, settings)


def capped_weight(tokens: Tokens, settings: LossSettings) -> Weighed:
    """clip(r) A log π, no gradient through clip(r): CISPO (2506.13585). Bounded, no token is silenced."""
    ratio = probability_ratio(tokens.policy, tokens.old)
    weight = ratio.detach().clamp(1 - settings.clip_low, 1 + settings.clip_high)
    return Weighed(weight * tokens.advantage * tokens.policy, ratio, weight != ratio)


def _bounded(ratio: Tensor, advantage: Tensor, settings: LossSettings) -> Weighed:
    bounded = ratio.clamp(1 - settings.clip_low, 1 + settings.clip_high)
    surrogate = torch.minimum(ratio * advantage, bounded * advantage)
    silent = ratio * advantage > bounded * advantage
    if settings.dual_clip is not None:
        floor = settings.dual_clip * advantage
        silent = silent | ((advantage < 0) & (surrogate < floor))
        surrogate = torch.where(advantage < 0, torch.maximum(surrogate, floor), surrogate)
    return Weighed(surrogate, ratio, silent)


SURROGATES: Mapping[Surrogate, Callable[[Tokens, LossSettings], Weighed]] = {
    "clipped": clipped,
    "sequence_clipped": sequence_clipped,
    "capped_weight": capped_weight,
}

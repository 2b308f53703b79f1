"""Random sampled tokens, and our loss of them: what comparisons with other trainers' losses share."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from local_model import make_row
from strop.config.losses import LOSSES, LossName
from strop.engines.local.losses.aggregation import shares
from strop.engines.local.losses.token_loss import token_loss
from strop.engines.local.losses.tokens import LossSettings, Tokens

ROWS, WIDTH, CAP = 6, 9, 2.0


@dataclass(frozen=True)
class Drawn:
    """Log-probs [ROWS, WIDTH] of four policies, a mask with holes, and the rows' advantages."""

    policy: Tensor
    old: Tensor
    sampler: Tensor
    reference: Tensor
    mask: Tensor
    advantages: Tensor

    def weights(self) -> Tensor:
        """Importance weights of the old policy against the sampler, capped."""
        return (self.old - self.sampler).exp().clamp(max=CAP)


def draw(seed: int) -> Drawn:
    rng = np.random.default_rng(seed)
    policy = -rng.exponential(1.5, (ROWS, WIDTH))
    mask = rng.random((ROWS, WIDTH)) < 0.6
    mask[:, 0] = True
    mask[1] = False
    mask[1, 3] = True
    near = [policy + rng.normal(0, scale, policy.shape) for scale in (0.5, 0.2, 1.0)]
    arrays = [policy, near[0], near[0] + rng.normal(0, 0.6, policy.shape), near[2]]
    return Drawn(*map(torch.tensor, arrays), torch.tensor(mask), torch.tensor(rng.normal(0, 1, ROWS)))


def ours(drawn: Drawn, settings: LossSettings) -> tuple[float, Tensor]:
    """Our loss and its gradient by the log-probs, [ROWS, WIDTH]; it sees the sampled tokens only."""
    mask = drawn.mask
    rows = [make_row([9] * (WIDTH + 1), [0, *row], name=f"row {i}") for i, row in enumerate(mask.tolist())]
    lengths = mask.sum(1)
    policy = drawn.policy.clone().requires_grad_()
    tokens = Tokens(
        policy=policy[mask],
        old=drawn.old[mask],
        sampler=drawn.sampler[mask],
        reference=drawn.reference[mask] if settings.kl_coef else None,
        advantage=drawn.advantages.repeat_interleave(lengths),
        lengths=lengths.tolist(),
    )
    share = shares(rows, settings)
    weights = torch.tensor(share.weights, dtype=torch.float64).repeat_interleave(lengths)
    loss = (token_loss(tokens, settings).loss * weights).sum() / share.divisor
    (gradient,) = torch.autograd.grad(loss, policy)
    return float(loss.detach()), gradient


def settings_of(name: LossName, **changes: Any) -> LossSettings:
    loss = LOSSES[name]
    plain: dict[str, Any] = {"clip_low": 0.2, "clip_high": 0.2, "dual_clip": None, "tis_cap": None}
    return LossSettings(
        surrogate=loss.surrogate,
        **{**plain, "aggregation": loss.aggregation, "length": WIDTH, **changes},
    )

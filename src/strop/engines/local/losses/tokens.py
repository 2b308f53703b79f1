"""What a token loss takes and gives: one number a sampled token, a pack of rows at a time."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from torch import Tensor

from strop.config.losses import Aggregation, Surrogate

KLKind = Literal["k1", "k2", "k3"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LossSettings:
    """`surrogate` and `aggregation` are what a loss's name stands for; see `strop.config.losses`.

    `clip_low`, `clip_high` bound the ratio to [1 - low, 1 + high]; `dual_clip` > 1 bounds the loss of
    tokens with negative advantage (None: off); `kl_coef` weighs the KL estimate `kl`; `tis_cap` caps
    the importance weight between learner and sampler (None: off). `length` is the constant, in tokens,
    that "constant_length" divides a sequence by.
    """

    surrogate: Surrogate = "clipped"
    aggregation: Aggregation = "token_mean"
    clip_low: float = 0.2
    clip_high: float = 0.28
    dual_clip: float | None = 3.0
    kl_coef: float = 0.0
    kl: KLKind = "k3"
    tis_cap: float | None = 2.0
    length: int = 2048


class Tokens(NamedTuple):
    """The sampled tokens of some rows, a row after the other, all [n] but `lengths`.

    Log-probs under the policy in training, the policy that this update started from, the sampler, and
    the reference (None where no KL is asked for); the advantage of each token's trajectory; and how
    many of the tokens each row has.
    """

    policy: Tensor
    old: Tensor
    sampler: Tensor
    reference: Tensor | None
    advantage: Tensor
    lengths: Sequence[int]


class Weighed(NamedTuple):
    """A surrogate, [n], which the loss is the negative of; the ratio in it; where a bound is in force."""

    value: Tensor
    ratio: Tensor
    clipped: Tensor


class TokenLoss(NamedTuple):
    """Per token, all [n]: the loss, the ratio to the old policy, whether a bound was active, the KL."""

    loss: Tensor
    ratio: Tensor
    clipped: Tensor
    kl: Tensor

"""What a loss's name stands for: one line a loss, with the settings of its paper."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

LossName = Literal["grpo", "dr_grpo", "dapo", "cispo", "gspo"]
Surrogate = Literal["clipped", "sequence_clipped", "capped_weight"]
Aggregation = Literal["token_mean", "sequence_mean", "constant_length"]
Scale = Literal["std", "none", "rank"]
Off = Literal["off"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """A surrogate of the policy gradient, and what a run file's keys are where it leaves them out.

    `token_mean`: over all sampled tokens of the update; `sequence_mean`: of each trajectory, then over the
    trajectories; `constant_length`: the sum over the trajectory by a constant, then over the trajectories.
    """

    surrogate: Surrogate = "clipped"
    aggregation: Aggregation = "token_mean"
    scale: Scale = "std"
    clip_low: float = 0.2
    clip_high: float = 0.2
    dual_clip: float | Off = "off"

    def settings(self) -> dict[str, Any]:
        """The keys of a run file's [training] table that the loss decides."""
        return {key: value for key, value in asdict(self).items() if key != "surrogate"}


LOSSES: Mapping[LossName, Loss] = {
    # 2402.03300 takes the mean of sequence means, which makes long attempts cheap: here it is over tokens.
    "grpo": Loss(clip_high=0.28, dual_clip=3.0),
    # 2503.20783: neither the group's spread nor the attempt's length divides.
    "dr_grpo": Loss(aggregation="constant_length", scale="none"),
    # 2503.14476: clip-higher, token mean, no KL. Tied groups are dropped for every loss.
    "dapo": Loss(clip_high=0.28),
    # 2506.13585 has no lower bound; 1 + 4 as in the large sweep of 2510.13786.
    "cispo": Loss(surrogate="capped_weight", clip_low=1.0, clip_high=4.0),
    # 2507.18071; ratios of sequences move far less than those of tokens.
    "gspo": Loss(surrogate="sequence_clipped", aggregation="sequence_mean", clip_low=3e-4, clip_high=4e-4),
}

"""How token losses become one number, the same for any split of the rows into packs and calls. Numpy only."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from strop.engines.local.losses.tokens import LossSettings
from strop.trajectory.tokens import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """The loss is (sum over tokens of weight · token loss) / divisor, both summed over all calls of a step.

    `weights` has the weight of a token, a row; `divisor` is what these rows add to it.
    """

    weights: Sequence[float]
    divisor: float


def shares(rows: Sequence[Row], settings: LossSettings) -> Shares:
    """What each row's tokens weigh in the loss of a step.

    A sequence is a trajectory: its rows, where the conversation forked, share one weight. So they have to be
    in one call; trajectories may be split among calls as one likes. Trajectories without a sampled token
    do not count.
    """
    tokens = [int(row.mask.sum()) for row in rows]
    if settings.aggregation == "token_mean":
        return Shares(weights=[1.0] * len(rows), divisor=float(sum(tokens)))
    lengths = Counter[str]()
    for row, count in zip(rows, tokens, strict=True):
        lengths[row.trajectory_id] += count
    sequences = float(sum(length > 0 for length in lengths.values()))
    if settings.aggregation == "constant_length":
        return Shares(weights=[1.0 / settings.length] * len(rows), divisor=sequences)
    return Shares(weights=[1.0 / max(1, lengths[row.trajectory_id]) for row in rows], divisor=sequences)

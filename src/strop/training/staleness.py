"""How old the policy was that sampled a row, in versions before the one that is about to be trained. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from strop.trajectory.model import Turn
from strop.trajectory.tokens import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """`version` is the policy's that is trained; a row more than `most` versions older is not trained on."""

    version: int
    most: int = 0


def staleness(row: Row, turns: Sequence[Turn], version: int) -> int:
    """Versions from that of the row's oldest sampled turn to `version`; 0 for a row without a sampled token.

    Never negative: a version that is ahead, as after a run was set back, counts as the present one.
    """
    sampled = {turns[index].policy_version for index in set(row.turn_of[row.mask].tolist())}
    return max(0, version - min(sampled, default=version))


def summary(ages: Sequence[int], dropped: int) -> dict[str, Any]:
    """Mean and highest staleness of the rows trained on, null without one; how many were dropped."""
    return {
        "mean": sum(ages) / len(ages) if ages else None,
        "most": max(ages, default=None),
        "dropped_rows": dropped,
    }

"""What a trained reward model says of a trajectory: a number a step, and of some models one of the whole."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from strop.grader.grade import UnscoredStep
from strop.trajectory.model import Trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewarded:
    """`values` by number of the step, as grades count them; None where there is none, and if it is a step,
    `unscored` says why. `whole` is of the conversation up to its last step, None where that has no number
    or the model is one of steps. `reason` why there is nothing at all. Higher is better.
    """

    trajectory_id: str
    values: tuple[float | None, ...] = ()
    unscored: tuple[UnscoredStep, ...] = ()
    whole: float | None = None
    reason: str | None = None


class Rewards(Protocol):
    """A trained reward model."""

    def score(self, trajectories: Sequence[Trajectory]) -> list[Rewarded]:
        """One an item, in order; what cannot be scored says so."""
        ...


def columns(name: str, rewarded: Rewarded) -> dict[str, Any]:
    """What a line of a grades file holds of this model, under its `name`: see `strop.grader.columns`."""
    scored = any(value is not None for value in rewarded.values)
    lost: list[dict[str, Any]] = [asdict(step) for step in rewarded.unscored]
    if rewarded.reason is not None:
        lost = [{"index": None, "message_index": None, "reason": rewarded.reason}]
    return {
        "scores": {} if rewarded.whole is None else {name: rewarded.whole},
        "step_scores": {name: list(rewarded.values)} if scored else {},
        "unscored_by": {name: lost} if lost else {},
    }

"""A trajectory as token rows and steps: from its recorded turns, or from its messages as plain text."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from strop.errors import InputError
from strop.grader.plain import Encode, plain_row
from strop.grader.segment import Part, Step, steps
from strop.trajectory.model import Trajectory
from strop.trajectory.tokens import Row, rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What is to be scored of a trajectory, or `reason`: why nothing is."""

    trajectory: Trajectory
    rows: Sequence[Row] = ()
    steps: Sequence[Step] = ()
    reason: str | None = None

    @property
    def tokens(self) -> int:
        """Tokens of all rows."""
        return sum(len(row.ids) for row in self.rows)


def from_turns(trajectory: Trajectory) -> Prepared:
    """Rows of the ids that the engine saw, and the steps that `segment.steps` finds in them."""
    try:
        made = rows(trajectory.trajectory_id, trajectory.turns)
        return Prepared(trajectory=trajectory, rows=made, steps=steps(trajectory, made))
    except InputError as error:
        return Prepared(trajectory=trajectory, reason=str(error))


def from_plain(
    trajectory: Trajectory, encode: Encode, bos: Sequence[int], *, every: bool = False
) -> Prepared:
    """One row of plain text, see `plain.plain_row`.

    Steps count assistant messages; with `every` message graded a step's index is its message's.
    """
    try:
        row = plain_row(trajectory, encode, bos, every=every)
    except InputError as error:
        return Prepared(trajectory=trajectory, reason=str(error))
    spoken = [i for i, m in enumerate(trajectory.messages) if m["role"] == "assistant"]
    among = np.cumsum(row.mask) - 1
    found = []
    for number in np.unique(row.turn_of[row.mask]).tolist():
        where = np.flatnonzero(row.turn_of == number)
        found.append(
            Step(
                index=number if every else spoken.index(number),
                message_index=number,
                parts=(Part(row=0, positions=where, sampled=among[where]),),
            )
        )
    return Prepared(trajectory=trajectory, rows=[row], steps=found)

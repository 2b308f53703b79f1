"""Steps of a trajectory: which sampled tokens, in which rows, wrote each assistant message."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from strop.errors import InputError
from strop.trajectory.model import Trajectory
from strop.trajectory.tokens import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Tokens of one turn: `row` indexes the trajectory's rows, `positions` int64 [K] its token ids,
    `sampled` int64 [K] the same tokens counted among the row's sampled ones, as an engine scores them.
    """

    row: int
    positions: NDArray[np.int64]
    sampled: NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One assistant message and the tokens that wrote it.

    `index` counts assistant messages from 0, also those that no turn wrote, so that it lines up with
    `Trajectory.first_wrong_step`. A message that took several turns has several parts, in turn order.
    """

    index: int
    message_index: int
    parts: tuple[Part, ...]


def steps(trajectory: Trajectory, rows: Sequence[Row]) -> list[Step]:
    """The steps in message order, from the rows that `tokens.rows` made of the trajectory's turns.

    Assistant messages before the first turn are the scenario's, not steps. Raises InputError where
    there is no turn, where a later assistant message has none (its tokens are unknown), and where
    a row names a turn that the trajectory lacks.
    """
    if not trajectory.turns:
        raise InputError("no turns, so no tokens to grade")
    written = _turns_by_message(trajectory)
    spoken = [i for i, m in enumerate(trajectory.messages) if m.get("role") == "assistant"]
    missing = [i for i in spoken if i > min(written) and i not in written]
    if missing:
        raise InputError(f"no turn wrote message {missing[0]}")
    parts = _parts_by_turn(trajectory, rows)
    return [
        Step(
            index=sum(i < message for i in spoken),
            message_index=message,
            parts=tuple(parts[turn] for turn in turns),
        )
        for message, turns in sorted(written.items())
    ]


def _turns_by_message(trajectory: Trajectory) -> dict[int, list[int]]:
    written: dict[int, list[int]] = {}
    for index, turn in enumerate(trajectory.turns):
        written.setdefault(turn.message_index, []).append(index)
    return written


def _parts_by_turn(trajectory: Trajectory, rows: Sequence[Row]) -> dict[int, Part]:
    parts: dict[int, Part] = {}
    for number, row in enumerate(rows):
        among_sampled = np.cumsum(row.mask) - 1
        for turn in np.unique(row.turn_of[row.mask]):
            positions = np.flatnonzero(row.turn_of == turn)
            parts[int(turn)] = Part(row=number, positions=positions, sampled=among_sampled[positions])
    if set(parts) != set(range(len(trajectory.turns))):
        raise InputError("rows and turns of the trajectory do not match")
    return parts

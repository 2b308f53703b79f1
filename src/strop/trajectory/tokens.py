"""Training rows: exact-prefix merge of turns into token rows, with a mask on what was sampled."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from strop.errors import InputError
from strop.trajectory.model import Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One branch of a trajectory as the engine saw it.

    `ids` int64 [T]; `mask` bool [T], true on sampled tokens only; `logprobs` float64 [T], the
    sampler's, 0 where the mask is false; `temperature` of sampling, the same for the whole row;
    `turn_of` int64 [T], index into the trajectory's turns of a sampled token, -1 elsewhere.
    """

    trajectory_id: str
    ids: NDArray[np.int64]
    mask: NDArray[np.bool_]
    logprobs: NDArray[np.float64]
    turn_of: NDArray[np.int64]
    temperature: float = 1.0


def check_turn(turn: Turn) -> None:
    """Raise InputError for a turn that cannot be trained or scored as it is.

    That is: ids and log-probs of different length, no prompt (nothing predicts the first token), no
    sampled token, a negative id, a log-prob that is not finite or above 0, a temperature below 0.
    """
    if len(turn.sampled_ids) != len(turn.logprobs):
        _refuse(
            turn,
            f"{len(turn.sampled_ids)} sampled ids but {len(turn.logprobs)} log-probs; "
            "an engine must return one for each",
        )
    if not turn.prompt_ids:
        _refuse(turn, "no prompt token; a sampled token needs one before it")
    if not turn.sampled_ids:
        _refuse(turn, "no sampled token; leave the turn out")
    if min(turn.prompt_ids) < 0 or min(turn.sampled_ids) < 0:
        _refuse(turn, "a negative token id; ids count from 0")
    if not np.isfinite(turn.logprobs).all() or max(turn.logprobs) > 0:
        _refuse(turn, "log-probs must be finite and at most 0")
    if not 0 <= turn.temperature < np.inf:
        _refuse(turn, f"temperature {turn.temperature}; it must be finite and at least 0")


def _refuse(turn: Turn, what: str) -> NoReturn:
    raise InputError(f"turn for message {turn.message_index}: {what}")


def rows(trajectory_id: str, turns: Sequence[Turn]) -> list[Row]:
    """Merge turns into rows: a turn whose prompt extends an open branch exactly continues it.

    A prompt that extends no branch (reasoning stripped by the template, history compacted, a
    sub-agent, another temperature) starts a new one, so `len(rows) - 1` is the number of forks.
    The longest branch that the prompt extends is taken. Every sampled token lands in exactly one
    row, and every row's ids are exactly what the engine saw. No turns give no rows.
    """
    branches: list[list[int]] = []
    seen: list[tuple[int, ...]] = []
    for index, turn in enumerate(turns):
        check_turn(turn)
        home = _branch_extended_by(turn, turns, branches, seen)
        whole = turn.prompt_ids + turn.sampled_ids
        if home is None:
            branches.append([index])
            seen.append(whole)
        else:
            branches[home].append(index)
            seen[home] = whole
    return [_row(trajectory_id, turns, branch, ids) for branch, ids in zip(branches, seen, strict=True)]


def _branch_extended_by(
    turn: Turn, turns: Sequence[Turn], branches: Sequence[Sequence[int]], seen: Sequence[tuple[int, ...]]
) -> int | None:
    fits = [
        b
        for b, ids in enumerate(seen)
        if turn.prompt_ids[: len(ids)] == ids and turns[branches[b][0]].temperature == turn.temperature
    ]
    return max(fits, key=lambda b: len(seen[b]), default=None)


def _row(trajectory_id: str, turns: Sequence[Turn], branch: Sequence[int], ids: tuple[int, ...]) -> Row:
    mask = np.zeros(len(ids), dtype=np.bool_)
    logprobs = np.zeros(len(ids), dtype=np.float64)
    turn_of = np.full(len(ids), -1, dtype=np.int64)
    for index in branch:
        turn = turns[index]
        span = slice(len(turn.prompt_ids), len(turn.prompt_ids) + len(turn.sampled_ids))
        mask[span], logprobs[span], turn_of[span] = True, turn.logprobs, index
    return Row(
        trajectory_id=trajectory_id,
        ids=np.asarray(ids, dtype=np.int64),
        mask=mask,
        logprobs=logprobs,
        turn_of=turn_of,
        temperature=turns[branch[0]].temperature,
    )

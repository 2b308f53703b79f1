"""Rows longer than the model: read in windows, or only their end; what is lost is marked, never a 0."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from strop.engine import Against, Contrasted, Scored
from strop.errors import InputError
from strop.grader.ratio import Floats
from strop.trajectory.tokens import Row

Long = Literal["slide", "last"]
NEVER = -1
"""What `unseen` says of a token that no window scores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Tokens [start, stop) of a row are shown to the model; those in [first, stop) are scored."""

    start: int
    first: int
    stop: int


def windows(row: Row, length: int, long: Long) -> list[Window]:
    """How a row is read by models with room for `length` ≥ 2 tokens.

    "slide": after the first window each scores half a window of tokens with the half before as context,
    so that every token is scored once. "last": only the last `length` tokens are read, the first of which
    has nothing before it. A row that fits is one window. Windows without a sampled token are left out.
    """
    total = len(row.ids)
    if total <= length:
        found = [Window(start=0, first=0, stop=total)]
    elif long == "last":
        found = [Window(start=total - length, first=total - length + 1, stop=total)]
    else:
        found = [Window(start=0, first=0, stop=length)]
        while found[-1].stop < total:
            first = found[-1].stop
            stop = min(first + max(1, length // 2), total)
            found.append(Window(start=stop - length, first=first, stop=stop))
    return [w for w in found if row.mask[w.first : w.stop].any()]


def shown(row: Row, window: Window) -> Row:
    """What the model is shown, with a mask on what is scored."""
    if window == Window(start=0, first=0, stop=len(row.ids)):
        return row
    part = slice(window.start, window.stop)
    mask = row.mask[part].copy()
    mask[: window.first - window.start] = False
    return replace(
        row,
        ids=row.ids[part],
        mask=mask,
        logprobs=row.logprobs[part],
        turn_of=np.where(mask, row.turn_of[part], -1),
    )


def joined(row: Row, cuts: Sequence[Window], read: Sequence[Contrasted], references: int) -> Contrasted:
    """The readings of a row's windows as one of the row, nan at sampled tokens that no window scores.

    Raises InputError where a reading has another number of tokens than its window.
    """
    where = [_places(row, window) for window in cuts]
    size = int(row.mask.sum())

    def whole(parts: Sequence[Floats]) -> Floats:
        out = np.full(size, np.nan)
        for places, values in zip(where, parts, strict=True):
            if len(values) != len(places):
                raise InputError(f"{row.trajectory_id}: the engine scored only a part of its tokens")
            out[places] = values
        return out

    def where_known(parts: Sequence[Floats | None]) -> Floats | None:
        known = [part for part in parts if part is not None]
        return whole(known) if len(known) == len(parts) else None

    def against(number: int) -> Against:
        return Against(
            logprobs=whole([one.references[number].logprobs for one in read]),
            kl=where_known([one.references[number].kl for one in read]),
        )

    return Contrasted(
        policy=Scored(
            logprobs=whole([one.policy.logprobs for one in read]),
            entropy=where_known([one.policy.entropy for one in read]),
            self_certainty=where_known([one.policy.self_certainty for one in read]),
            topk_logprob=where_known([one.policy.topk_logprob for one in read]),
        ),
        references=tuple(against(number) for number in range(references)),
    )


def unseen(row: Row, cuts: Sequence[Window]) -> NDArray[np.int64]:
    """Of each sampled token, [n_sampled], how many tokens at the row's start its window left out."""
    out = np.full(int(row.mask.sum()), NEVER, dtype=np.int64)
    for window in cuts:
        out[_places(row, window)] = window.start
    return out


def _places(row: Row, window: Window) -> NDArray[np.int64]:
    before = int(row.mask[: window.first].sum())
    return np.arange(before, before + int(row.mask[window.first : window.stop].sum()))

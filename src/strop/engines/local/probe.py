"""The probe that tells a new adapter from an old one: ask where training moved the policy most. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from strop.trajectory.tokens import Row

TOP = 20
LIKELY = 0.05
"""Less likely tokens are left out: rounding moves their log-probs by more than training does."""
ROOM = 96
"""Tokens that the learner reads to find the place, beyond the shortest prompt there is."""
RANKED, MOST = 512, 64
"""So many places are looked at, the most promising first, and so many are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A prompt, and how far (nats) the log-prob of the `token` that followed it has moved by training.

    A server that still has the old adapter is off by about `separation` there; None where nothing
    has been trained yet.
    """

    prompt: tuple[int, ...]
    token: int | None = None
    temperature: float = 1.0
    separation: float | None = None


class Place(NamedTuple):
    """The sampled token number `nth` of row number `row`, and how far its log-prob has moved, in nats."""

    row: int
    nth: int
    moved: float


def behind(prompt: Sequence[int]) -> Row:
    """A row whose one place is the end of `prompt`, where nothing is known to have been trained."""
    return _row([*prompt, 0], [len(prompt)], [0.0], 1.0)


def candidates(
    rows: Sequence[Row],
    advantages: Sequence[float],
    logprobs: Sequence[NDArray[np.float64]],
    longest: int,
) -> list[Row]:
    """Where a step on these rows is likely to move the policy most: rows cut, with those places alone.

    `logprobs` are the policy's before the step, of each row's sampled tokens; the rows returned hold them.
    Nothing is read for it, so they may be those by which the gradient was found.
    A step moves a token's log-prob by about advantage · (1 - p), as that is how far its logit's gradient
    reaches. Places are taken in that order as long as their prompts, shared prefixes once, are at most ROOM
    tokens longer than the shortest, and each below `longest`. None where every advantage is 0 or no token is
    at least LIKELY.
    """
    ranked = [one for one in _ranked(rows, advantages, logprobs) if one[3] < longest]
    if not ranked:
        return []
    room, size = min(end for _, _, _, end in ranked) + ROOM, 0
    chosen: dict[int, dict[int, int]] = {}
    for _, row, nth, end in ranked[:RANKED]:
        prompt = rows[row].ids[:end]
        more = end - max((_alike(prompt, rows[r].ids[: max(ends)]) for r, ends in chosen.items()), default=0)
        if size + more <= room and sum(map(len, chosen.values())) < MOST:
            chosen.setdefault(row, {})[end] = nth
            size += more
    return [_cut(rows[row], dict(sorted(ends.items())), logprobs[row]) for row, ends in chosen.items()]


def as_read(rows: Sequence[Row], logprobs: Sequence[NDArray[np.float64]]) -> list[Row]:
    """Candidate rows with the log-probs of their places as they were read once more."""
    return [_with(row, values) for row, values in zip(rows, logprobs, strict=True)]


def sharpest(rows: Sequence[Row], after: Sequence[NDArray[np.float64]]) -> Place:
    """The place in candidate rows that a step has moved most, from the policy's log-probs after it.

    The first where nothing has moved.
    """
    best = Place(0, 0, 0.0)
    for number, (row, now) in enumerate(zip(rows, after, strict=True)):
        moved = np.abs(now - row.logprobs[row.mask])
        nth = int(np.argmax(moved))
        if moved[nth] > best.moved:
            best = Place(number, nth, float(moved[nth]))
    return best


def probe_at(rows: Sequence[Row], place: Place, *, fresh: bool) -> Probe:
    """The probe at a place; unless the rows are `fresh`, nothing is known of what was served before."""
    row = rows[place.row]
    end = int(np.flatnonzero(row.mask)[place.nth])
    known = fresh and place.moved > 0
    return Probe(
        prompt=tuple(row.ids[:end].tolist()),
        token=int(row.ids[end]) if known else None,
        temperature=row.temperature or 1.0,
        separation=place.moved if known else None,
    )


def likely(top: Sequence[tuple[int, float]]) -> dict[int, float]:
    """The server's most likely tokens that are likely enough to compare, by id; at least the first."""
    return {token: value for place, (token, value) in enumerate(top) if place == 0 or value >= np.log(LIKELY)}


def gap(served: Mapping[int, float], learner: Mapping[int, float]) -> float:
    """Mean difference of a log-prob between server and learner over the server's likely tokens.

    Weighted by their probability, as rounding moves the log-probs of unlikely tokens most. NaN where
    any of them is.
    """
    weights = {token: float(np.exp(value)) for token, value in served.items()}
    apart = sum(weights[token] * abs(value - learner[token]) for token, value in served.items())
    return apart / sum(weights.values())


def to_json(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Candidate rows as JSON objects."""
    return [
        {
            "ids": row.ids.tolist(),
            "places": np.flatnonzero(row.mask).tolist(),
            "logprobs": row.logprobs[row.mask].tolist(),
            "temperature": row.temperature,
        }
        for row in rows
    ]


def from_json(rows: Sequence[Mapping[str, Any]]) -> list[Row]:
    """What `to_json` wrote."""
    return [_row(row["ids"], row["places"], row["logprobs"], row["temperature"]) for row in rows]


def _ranked(
    rows: Sequence[Row], advantages: Sequence[float], logprobs: Sequence[NDArray[np.float64]]
) -> list[tuple[float, int, int, int]]:
    """(promise, row, which sampled token, length of its prompt) of every place, the most promising first."""
    found = []
    for number, (row, advantage, before) in enumerate(zip(rows, advantages, logprobs, strict=True)):
        promise = np.where(before >= np.log(LIKELY), abs(advantage) * -np.expm1(before), 0.0)
        ends = np.flatnonzero(row.mask)
        found += [(float(promise[k]), number, int(k), int(ends[k])) for k in np.flatnonzero(promise > 0)]
    return sorted(found, key=lambda one: -one[0])


def _alike(one: NDArray[np.int64], other: NDArray[np.int64]) -> int:
    """Length of the common prefix."""
    size = min(len(one), len(other))
    differ = np.flatnonzero(one[:size] != other[:size])
    return int(differ[0]) if len(differ) else size


def _with(row: Row, logprobs: NDArray[np.float64]) -> Row:
    known = np.zeros(len(row.ids))
    known[row.mask] = logprobs
    return replace(row, logprobs=known)


def _cut(row: Row, ends: Mapping[int, int], logprobs: NDArray[np.float64]) -> Row:
    """A row up to the last of these places, `ends`, each with the number of its sampled token."""
    ids = row.ids[: max(ends) + 1].tolist()
    return _row(ids, list(ends), logprobs[list(ends.values())].tolist(), row.temperature or 1.0)


def _row(ids: Sequence[int], places: Sequence[int], logprobs: Sequence[float], temperature: float) -> Row:
    mask = np.isin(np.arange(len(ids)), places)
    row = Row(
        trajectory_id="probe",
        ids=np.asarray(ids, dtype=np.int64),
        mask=mask,
        logprobs=np.zeros(len(ids)),
        turn_of=np.where(mask, 0, -1),
        temperature=temperature,
    )
    return _with(row, np.asarray(logprobs))

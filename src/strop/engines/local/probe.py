"""The probe that tells a new adapter from an old one: ask where training moved the policy most. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from strop.trajectory.tokens import Row

ROWS = 6
TOP = 20
LIKELY = 0.05
"""Less likely tokens are left out: rounding moves their log-probs by more than training does."""


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


def sharpest(
    rows: Sequence[Row], before: Sequence[NDArray[np.float64]], after: Sequence[NDArray[np.float64]]
) -> Probe | None:
    """The place in `rows` where the learner's log-prob of the sampled token was moved most by a step.

    `before` and `after` have for each row the log-probs of its sampled tokens. None where nothing that
    was at least `LIKELY` before has moved.
    """
    best: Probe | None = None
    for row, then, now in zip(rows, before, after, strict=True):
        moved = np.where(then >= np.log(LIKELY), np.abs(now - then), -1.0)
        place = int(np.argmax(moved))
        if moved[place] > (best.separation or 0.0 if best else 0.0):
            end = int(np.flatnonzero(row.mask)[place])
            best = Probe(
                prompt=tuple(row.ids[:end].tolist()),
                token=int(row.ids[end]),
                temperature=row.temperature or 1.0,
                separation=float(moved[place]),
            )
    return best


def answers(probe: Probe, tokens: Sequence[int]) -> list[Row]:
    """One row a token: the prompt and the token as if it had been sampled there."""
    ids = [np.array([*probe.prompt, token], dtype=np.int64) for token in tokens]
    last = np.arange(len(probe.prompt) + 1) == len(probe.prompt)
    return [
        Row(
            trajectory_id="probe",
            ids=one,
            mask=last,
            logprobs=np.zeros(len(one)),
            turn_of=np.where(last, 0, -1),
            temperature=probe.temperature,
        )
        for one in ids
    ]


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

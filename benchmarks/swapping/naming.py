"""Which version an answer is by, from its log-probs alone. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Naming:
    """Answers held against every version: `wrong` lists those nearest to another version than the one named.

    `named_gap` is the largest distance of an answer to its own version, `other_gap` the smallest one to any
    other version, in nats. Where the second is not far above the first, nothing is shown.
    """

    answers: int
    wrong: Sequence[int]
    named_gap: float
    other_gap: float


def distances(served: Sequence[Floats], scored: Sequence[Sequence[Floats]]) -> Floats:
    """[versions, answers]: largest difference of a log-prob between an answer and a version's score of it.

    `served` are each answer's log-probs as the server gave them, `scored` each version's of the same ids.
    """
    return np.array(
        [
            [np.abs(mine - said).max() for mine, said in zip(version, served, strict=True)]
            for version in scored
        ]
    )


def naming(apart: Floats, named: Sequence[int]) -> Naming:
    """Hold answers, that name these versions, against all. `apart` as `distances` gives it."""
    columns = np.arange(len(named))
    own = apart[list(named), columns]
    others = apart.copy()
    others[list(named), columns] = np.inf
    nearest = others.min(axis=0)
    return Naming(
        answers=len(named),
        wrong=np.flatnonzero(~(own < nearest)).tolist(),
        named_gap=float(own.max()),
        other_gap=float(nearest.min()),
    )

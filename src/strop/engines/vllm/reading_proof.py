"""Does the server read with the adapters that it was given? Held against a reading here, if that is cheap."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np

from strop.engines.local.contrast import ContrastConfig, LocalContrast
from strop.engines.vllm.scorer import Scores
from strop.errors import EngineError
from strop.trajectory.tokens import Row

SMALL = 1_000_000_000
"""Parameters up to which a model is loaded here for a moment."""
TOKENS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingProof:
    """`gap` largest difference, in nats, between a log-prob at the server and here, over `tokens` tokens of
    all sides, and the `bound` it was held to; None where the model is too large to be loaded here, and all
    that is known is that no two adapters gave the same numbers.
    """

    gap: float | None
    bound: float
    tokens: int

    def to_json(self) -> dict[str, Any]:
        return {"gap": self.gap, "bound": self.bound, "tokens": self.tokens}


def refuse_alike(scores: Mapping[str, Sequence[Scores]]) -> None:
    """Raise EngineError where two different models gave the same numbers, bit for bit, on all rows."""
    if not any(len(row) > 1 for rows in scores.values() for row in rows):
        return
    for (one, ours), (other, theirs) in combinations(scores.items(), 2):
        if all(np.array_equal(a, b, equal_nan=True) for a, b in zip(ours, theirs, strict=True)):
            raise EngineError(
                f"vLLM gives bit for bit the same log-probs for {one} and {other}, which are different "
                "models: an adapter is not applied; grade with --engine local"
            )


def read_here(
    config: ContrastConfig, parameters: int, row: Row, served: Sequence[Scores], bound: float
) -> ReadingProof:
    """Read the row's beginning with the same models here, and hold `served`, one a side, against that.

    Of each side the likelier half of the tokens counts: rounding moves log-probs of the others by more than a
    small adapter does. Raises EngineError where one is further away than `bound`.
    """
    if parameters > SMALL or len(row.ids) < 2:
        return ReadingProof(gap=None, bound=bound, tokens=0)
    begun = _beginning(row)
    contrast = LocalContrast(replace(config, max_length=None))
    [read] = contrast.read([begun])
    here = [read.policy.logprobs, *(reference.logprobs for reference in read.references)]
    size = len(begun.ids)
    gaps = [_gaps(ours, theirs[1:size]) for ours, theirs in zip(here, served, strict=True)]
    worst = [float(gap.max(initial=0.0)) for gap in gaps]
    if max(worst) > bound:
        side = (config.policy, *config.references)[int(np.argmax(worst))]
        raise EngineError(
            f"vLLM does not read {side} as it is: a log-prob of {row.trajectory_id} is {max(worst):.2g} nats "
            f"from that of the same model here, at most {bound:g} is rounding; grade with --engine local"
        )
    return ReadingProof(gap=max(worst), bound=bound, tokens=sum(gap.size for gap in gaps))


def _gaps(ours: Scores, theirs: Scores) -> Scores:
    gaps: Scores = np.abs(ours - theirs)[ours >= np.median(ours)]
    return gaps


def _beginning(row: Row) -> Row:
    ids = row.ids[:TOKENS]
    mask = np.arange(len(ids)) > 0
    return Row(
        trajectory_id=row.trajectory_id,
        ids=ids,
        mask=mask,
        logprobs=np.zeros(len(ids)),
        turn_of=np.where(mask, 0, -1),
    )

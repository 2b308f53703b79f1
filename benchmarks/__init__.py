"""Benchmarks: each compares strop with a peer in one run, as a ratio of medians over several pairs."""

import json
import platform
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Seconds of each pair of runs, ours and theirs; `limit` is the ratio that is asked for.

    `theirs` is empty where the peer is absent; then there is no ratio.
    """

    name: str
    ours: Sequence[float]
    theirs: Sequence[float]
    limit: float
    details: dict[str, Any]

    @property
    def ratio(self) -> float | None:
        """Median over the pairs of theirs divided by ours: above 1 is better for us."""
        if not self.theirs:
            return None
        return statistics.median(t / o for o, t in zip(self.ours, self.theirs, strict=True))

    def to_json(self) -> str:
        """The object that `--json` prints."""
        ratio = self.ratio
        return json.dumps(
            {
                "name": self.name,
                "ratio": None if ratio is None else round(ratio, 3),
                "limit": self.limit,
                "ours": [round(seconds, 3) for seconds in self.ours],
                "theirs": [round(seconds, 3) for seconds in self.theirs],
                "pairs": min(len(self.ours), len(self.theirs)),
                "machine": f"{platform.machine()} {platform.system()} python {platform.python_version()}",
                **self.details,
            }
        )

"""Benchmarks: each compares strop with a peer in one run, as a ratio of medians over several pairs."""

import json
import platform
import statistics
from collections.abc import Mapping, Sequence
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
                "machine": machine(),
                **self.details,
            }
        )


def machine() -> str:
    """Processor, system and Python, as every benchmark prints them."""
    return f"{platform.machine()} {platform.system()} python {platform.python_version()}"


def check(name: str, value: float, limit: float, *, least: bool = False) -> dict[str, Any]:
    """A figure beside what is asked for: at most the limit, or at `least` the limit."""
    return {"name": name, "value": value, "limit": limit, "met": value >= limit if least else value <= limit}


def check_line(row: Mapping[str, Any], digits: int = 6) -> str:
    """A check as a line to read."""
    met = "met   " if row["met"] else "NOT   "
    return f"{met} {row['name']}: {row['value']:.{digits}g} (limit {row['limit']:g})"

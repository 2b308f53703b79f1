"""The learning rate over the updates of a run, as a share of the highest. A pure function of their number."""

import math
from dataclasses import dataclass
from typing import Literal

Shape = Literal["constant", "linear", "cosine"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A linear rise over the first `warmup` updates, then `shape` down to 0 at update `updates`.

    It has no state: a resumed run asks with the number of updates made, and goes on as if never stopped.
    """

    shape: Shape = "constant"
    warmup: int = 0
    updates: int = 1

    def share(self, made: int) -> float:
        """In [0, 1] for the update after `made` ones; 0 beyond the last, but for "constant".

        The first update of a warm-up has 1 / warmup, as one with a rate of 0 would be wasted; for the same
        reason the last one of a run is above 0.
        """
        if made < self.warmup:
            return (made + 1) / self.warmup
        if self.shape == "constant":
            return 1.0
        left = min(1.0, max(0.0, (self.updates - made) / max(1, self.updates - self.warmup)))
        return left if self.shape == "linear" else (1 - math.cos(math.pi * left)) / 2

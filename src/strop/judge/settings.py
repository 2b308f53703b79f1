"""How a judge judges, and what it may cost."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from strop.errors import ConfigError

Mode = Literal["listwise", "pairwise", "pointwise", "logprob"]
Combination = Literal["mean", "borda", "kemeny"]
ALONE: tuple[Mode, ...] = ("pointwise", "logprob")
"""The modes that show each attempt alone; the others compare."""

KEMENY_MOST = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeSettings:
    """How often a group is shown, in which orders, and the limits. Raises ConfigError, naming the key.

    `mode`: "listwise" shows a group at once, "pairwise" every two attempts, "pointwise" each alone,
    "logprob" each alone with the expected score under the reply's distribution. `orders` calls a group
    (or a subset of it), each second one the reverse of the one before; where their agreement is under
    `escalate_below` (0 to 1), calls up to `max_orders` follow. `combine` merges them. A group of more
    than `most_at_once` attempts is shown in overlapping subsets of that size.
    `attempts` bounds the calls for one presentation (2: one re-ask that names the defect); `deadline_s`
    is the time one of them may take, waiting for an overloaded server included. `max_calls` and
    `max_money` are ceilings over the judge's life; calls in flight when one is met still end.
    `max_failures_in_a_row` groups without a verdict raise JudgeStopped (0: never). `cache` is a
    directory, None for no cache. `seed` draws orders and nonces, together with the texts shown.
    """

    mode: Mode = "listwise"
    orders: int = 2
    max_orders: int = 4
    escalate_below: float = 0.75
    combine: Combination = "mean"
    most_at_once: int = 8
    attempts: int = 2
    max_tokens: int = 1024
    concurrency: int = 8
    deadline_s: float = 600.0
    max_calls: int | None = None
    max_money: float | None = None
    max_failures_in_a_row: int = 0
    cache: Path | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for key in ("orders", "max_orders", "attempts", "max_tokens", "concurrency"):
            if getattr(self, key) < 1:
                raise ConfigError(f"judge.{key} is {getattr(self, key)}; it must be at least 1")
        for key, allowed in (("mode", get_args(Mode)), ("combine", get_args(Combination))):
            if getattr(self, key) not in allowed:
                raise ConfigError(f"judge.{key} is {getattr(self, key)!r}; it must be one of {allowed}")
        if self.most_at_once < 2:
            raise ConfigError(f"judge.most_at_once is {self.most_at_once}; it must be at least 2")
        if not (math.isfinite(self.deadline_s) and self.deadline_s > 0):
            raise ConfigError(f"judge.deadline_s is {self.deadline_s}; it must be a positive number")
        if not 0 <= self.escalate_below <= 1:
            raise ConfigError(f"judge.escalate_below is {self.escalate_below}; it must be in 0 to 1")
        if self.combine == "kemeny" and self.most_at_once > KEMENY_MOST:
            raise ConfigError(f"judge.most_at_once: an exact Kemeny order takes at most {KEMENY_MOST}")

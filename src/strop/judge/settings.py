"""How to reach a judge and what it may cost."""

import math
from dataclasses import dataclass
from pathlib import Path

from strop.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeSettings:
    """An OpenAI-compatible endpoint and its limits. Raises ConfigError, naming the key, for a wrong value.

    `timeout_s` is the deadline of one call in seconds; `attempts` the calls a judgement may take (2:
    one re-ask that names the defect); `backoff` how often a call is repeated after 429, 5xx or a lost
    connection. Prices are in money per million tokens, None where unknown. `max_calls` and
    `max_money` are ceilings over the judge's life; calls in flight when one is met still end.
    `max_prompt_chars` bounds the attempts and their context. `cache` is a directory, None for no cache.
    """

    base_url: str
    api_key: str
    model: str
    temperature: float = 0.0
    max_tokens: int = 1024
    timeout_s: float = 120.0
    concurrency: int = 8
    attempts: int = 2
    backoff: int = 2
    seed: int | None = 0
    price_in: float | None = None
    price_out: float | None = None
    max_calls: int | None = None
    max_money: float | None = None
    max_prompt_chars: int = 400_000
    cache: Path | None = None

    def __post_init__(self) -> None:
        for key in ("max_tokens", "concurrency", "attempts", "max_prompt_chars"):
            if getattr(self, key) < 1:
                raise ConfigError(f"judge.{key} is {getattr(self, key)}; it must be at least 1")
        if not (math.isfinite(self.timeout_s) and self.timeout_s > 0):
            raise ConfigError(f"judge.timeout_s is {self.timeout_s}; it must be a positive number of seconds")
        if self.max_money is not None and (self.price_in is None or self.price_out is None):
            raise ConfigError("judge.max_money needs judge.price_in and judge.price_out, per million tokens")

    def money(self, tokens_in: int, tokens_out: int) -> float | None:
        """What these tokens cost, None where a price is unknown."""
        if self.price_in is None or self.price_out is None:
            return None
        return (tokens_in * self.price_in + tokens_out * self.price_out) / 1e6

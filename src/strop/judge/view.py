"""What of an attempt the judge sees, and how much of it."""

import math
import re
from dataclasses import dataclass
from typing import Literal, get_args

from strop.errors import ConfigError

Images = Literal["placeholder", "pass"]
Repeats = Literal["once", "full"]

FLOOR_BYTES = 1000
"""The least room that any attempt can be fitted into."""

FRAME_BYTES = 700
"""Room for what stands around the texts of two attempts; the rubric is not counted."""

SHARES = 4
"""A prompt's room is one half for what all attempts share, and a quarter each for two attempts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What of an attempt the judge sees. Raises ConfigError, naming the key.

    `reasoning` shows the model's reasoning where messages hold it. `images` are a placeholder in the
    text, or passed on to a judge that can see. `volatile` are regular expressions: what they match in a
    message's texts (a timestamp, a request's id) counts for nothing where attempts are compared, so that
    it defeats neither the common prefix nor the merging of duplicates; it is still shown. `repeats`
    "once" writes a long tool result that occurs more than once a single time, with a name for it.
    `attempt_tokens` is the budget of one attempt beyond the common prefix, `group_tokens` what a prompt
    may hold, of which the prefix gets at most half and an attempt at most a quarter. Tokens are
    estimated as UTF-8 bytes over `bytes_per_token`, because the judge's tokenizer is not at hand.
    """

    reasoning: bool = False
    images: Images = "placeholder"
    volatile: tuple[str, ...] = ()
    repeats: Repeats = "once"
    attempt_tokens: int = 16_000
    group_tokens: int = 100_000
    bytes_per_token: float = 3.0

    def __post_init__(self) -> None:
        for key, allowed in (("images", get_args(Images)), ("repeats", get_args(Repeats))):
            if getattr(self, key) not in allowed:
                raise ConfigError(f"judge.{key} is {getattr(self, key)!r}; it must be one of {allowed}")
        _check_patterns(self.volatile)
        if not (math.isfinite(self.bytes_per_token) and self.bytes_per_token > 0):
            raise ConfigError(
                f"judge.bytes_per_token is {self.bytes_per_token}; it must be a positive number"
            )
        for key, room in (
            ("attempt_tokens", FLOOR_BYTES),
            ("group_tokens", SHARES * FLOOR_BYTES + FRAME_BYTES),
        ):
            least = math.ceil(room / self.bytes_per_token)
            if getattr(self, key) < least:
                raise ConfigError(f"judge.{key} is {getattr(self, key)}; it must be at least {least}")

    @property
    def attempt_bytes(self) -> int:
        """The room of one attempt beyond the common prefix."""
        return min(int(self.attempt_tokens * self.bytes_per_token), self._text_bytes // SHARES)

    @property
    def context_bytes(self) -> int:
        """The room of what all attempts share."""
        return self._text_bytes // 2

    @property
    def _text_bytes(self) -> int:
        return int(self.group_tokens * self.bytes_per_token) - FRAME_BYTES


def _check_patterns(patterns: object) -> None:
    if isinstance(patterns, str) or not isinstance(patterns, tuple | list):
        raise ConfigError(f"judge.volatile is {patterns!r}; it must be a list of regular expressions")
    for pattern in patterns:
        try:
            re.compile(pattern)
        except (re.error, TypeError, RecursionError, OverflowError) as error:
            raise ConfigError(
                f"judge.volatile holds {pattern!r}, which is no regular expression: {error}"
            ) from error

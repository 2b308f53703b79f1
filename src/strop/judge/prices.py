"""What tokens cost."""

import math
from dataclasses import dataclass

from strop.errors import ConfigError, InputError

PER = 1_000_000


@dataclass(frozen=True, slots=True)
class Price:
    """Money per million tokens: of prompts, of replies, and of prompt tokens that the server had cached.

    `cached_input` None: as `input`. Raises ConfigError for a price that is negative or not finite.
    """

    input: float
    output: float
    cached_input: float | None = None

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value >= 0):
                raise ConfigError(
                    f"the price {name} is {value}; give money per million tokens, at least 0, or leave it out"
                )

    def of(self, tokens_in: int, tokens_cached: int, tokens_out: int) -> float:
        """Money for a prompt, `tokens_cached` of it cached, and its reply.

        Raises InputError for a negative count or more cached tokens than there are.
        """
        if not 0 <= tokens_cached <= tokens_in or tokens_out < 0:
            raise InputError(f"{tokens_in} tokens in, {tokens_cached} of them cached, {tokens_out} out")
        cached = self.input if self.cached_input is None else self.cached_input
        fresh = tokens_in - tokens_cached
        return (fresh * self.input + tokens_cached * cached + tokens_out * self.output) / PER

"""How much a rollout may take."""

from dataclasses import dataclass

from strop.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """`attempts` a scenario; `deadline_s` wall-clock seconds an attempt, from when it has a place among
    those that are sampled; the rest is a tool agent's: model calls an attempt, sampling temperature, tokens
    a call. Agents of users choose their own.
    """

    attempts: int = 6
    deadline_s: float = 120.0
    max_turns: int = 8
    temperature: float = 1.0
    max_tokens: int = 256

    def __post_init__(self) -> None:
        for name in ("attempts", "deadline_s", "max_turns", "max_tokens"):
            if not getattr(self, name) > 0:
                raise InputError(f"rollout limits: {name} is {getattr(self, name)}, must be above 0")
        if not self.temperature >= 0:
            raise InputError(f"rollout limits: temperature is {self.temperature}, must be at least 0")

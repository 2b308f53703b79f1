"""What the gateway needs of a sampler: token ids in, token ids and log-probs out. Numpy-free, torch-free."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How to sample. `temperature` 0 is greedy; `seed` fixes the draw; `top_logprobs` in [0, 20]."""

    max_tokens: int = 512
    temperature: float = 1.0
    top_p: float = 1.0
    seed: int = 0
    stop: tuple[str, ...] = ()
    top_logprobs: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """One completion: `ids` include the end-of-turn id where one was sampled.

    `logprobs` are natural logs under the distribution sampled from, one for each id.
    `top` holds for each id the (id, log-prob) pairs asked for by `top_logprobs`.
    `finish_reason` is "stop" (end id or stop string), "length" or "abort".
    `version` is the served policy version that sampled all of it, `model` its versioned name.
    """

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: str
    version: int
    top: tuple[tuple[tuple[int, float], ...], ...] = ()
    cached_tokens: int = 0
    model: str = ""


OnToken = Callable[[int, float], None]


class Sampler(Protocol):
    """A batched decoder behind the gateway. Model names map to immutable served versions.

    Sessions make a run repeatable: all sessions opened together form a cohort whose requests are
    admitted at instants that depend on the work alone, never on the clock, so that batches, and
    with them every rounding, are the same in every run.
    """

    def models(self) -> Sequence[str]:
        """Names that can be asked for; the first is the current policy's versioned name."""
        ...

    def open(self, sessions: Sequence[str]) -> None:
        """Open a cohort of sessions, in the order in which they may start."""
        ...

    def shut(self, session: str) -> None:
        """The session will ask for nothing more; unknown ids are ignored."""
        ...

    def waits(self, session: str) -> bool:
        """Whether others must end before the session is answered, as all places are taken."""
        ...

    async def sample(
        self,
        prompt_ids: Sequence[int],
        params: SamplingParams,
        *,
        model: str,
        session: str | None = None,
        on_token: OnToken | None = None,
    ) -> Sampled:
        """One completion. Raises InputError for a prompt too long or a model not served, ServerLost where
        whatever samples was lost before it had answered, and may be back later."""
        ...

    async def ready(self) -> None:
        """Return once a completion can be asked for. Raises EngineError where none ever will."""
        ...


class Tokenizer(Protocol):
    """The few things rendering needs of a tokenizer."""

    chat_template: str
    bos_token: str
    eos_token: str
    eos_ids: frozenset[int]
    special_tokens: Sequence[str]

    def encode(self, text: str, *, special: bool) -> list[int]:
        """Token ids of `text`. `special=False`: no part of it becomes a control token."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Text of the ids, control tokens left out."""
        ...

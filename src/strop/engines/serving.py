"""Who serves: the half of an engine that answers agents, apart from the half that learns."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from strop.inference.sampling import Sampler, Tokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What the served versions stand on, as the learner has it.

    `source` is the model's folder or hub name, `base` the bare causal LM in memory; `rank` the rank of the
    policy's adapter; `slots` conversations decode at once, of at most `max_length` tokens each. `bound` is
    how far two log-probs of one model may be from each other by rounding, in nats; `token_bytes` what a
    token's keys and values take, in all layers.
    """

    source: Path | str
    base: Any
    device: str
    dtype: str
    tokenizer: Tokenizer
    rank: int
    slots: int
    max_length: int
    bound: float
    token_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What else is said of a version that is to be served.

    `prompt` is one at which it differs from others, as far as that is known; `slots` most requests of it that
    run at once, where whoever serves can choose.
    """

    prompt: tuple[int, ...]
    slots: int | None = None


class Serving(Protocol):
    """Serves adapters over one base model, each under a name of its own that never means another.

    All methods may be called from any thread.
    """

    @property
    def sampler(self) -> Sampler:
        """What the gateway asks."""
        ...

    @property
    def base(self) -> str | None:
        """The name under which the bare base answers; None where it is not served."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """What is slow with the models served, a line each."""
        ...

    @property
    def closed(self) -> bool: ...

    def serve(self, name: str, version: int, adapter: Any | None, told: Told) -> None:
        """Serve a PEFT model's "policy" adapter as it is now (None: the bare base) under a new name.

        Returns once it can be asked. Raises InputError for a name already taken, PublishError where it cannot
        be served.
        """
        ...

    def wait(self) -> None:
        """Return once what is served can be asked. Raises EngineError where it never will be."""
        ...

    def route(self, alias: str, name: str) -> None:
        """Let `alias` mean the served `name` from the next request on."""
        ...

    def retire(self, name: str) -> None:
        """Take no more requests for `name`; it goes when its last request in flight has ended."""
        ...

    def close(self) -> None:
        """Stop serving. Calling it again does nothing."""
        ...


class Events:
    """What happens to who serves, for whoever listens; kept until somebody does. Thread-safe."""

    def __init__(self) -> None:
        self._kept: list[tuple[str, dict[str, Any]]] = []
        self._hears: Hears | None = None
        self._lock = threading.Lock()

    def __call__(self, kind: str, **fields: Any) -> None:
        """Something happened."""
        with self._lock:
            if self._hears is None:
                self._kept.append((kind, fields))
            else:
                self._hears(kind, **fields)

    def listen(self, hears: "Hears") -> None:
        """Tell `hears` what was kept, and what happens from now on."""
        with self._lock:
            for kind, fields in self._kept:
                hears(kind, **fields)
            self._kept, self._hears = [], hears


Hears = Callable[..., None]
"""Hears of an event: its kind, then its fields by keyword."""

OpenServing = Callable[[Ground, Events], Serving]

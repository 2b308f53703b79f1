"""Serving in this process: folded copies of the base behind the local sampler."""

from typing import Any

from strop.engines.local.sampler import LocalSampler
from strop.engines.local.weights import folded, share
from strop.engines.serving import Events, Ground, Told


class InProcess:
    """Implements `strop.engines.serving.Serving` over a `LocalSampler`; the base is shared, not copied."""

    base: str | None = None

    def __init__(self, ground: Ground, _events: Events) -> None:
        self._ground = ground
        self.sampler = LocalSampler(ground.device, slots=ground.slots, max_length=ground.max_length)

    @property
    def notes(self) -> tuple[str, ...]:
        return self.sampler.notes

    @property
    def closed(self) -> bool:
        return self.sampler.closed

    def serve(self, name: str, version: int, adapter: Any | None, told: Told) -> None:
        """Fold the adapter into a copy of the base and serve that."""
        base, tokenizer = self._ground.base, self._ground.tokenizer
        weights = share(base) if adapter is None else folded(base, adapter, "policy")
        self.sampler.serve(
            name, version, weights, eos_ids=tokenizer.eos_ids, decode=tokenizer.decode, slots=told.slots
        )

    def wait(self) -> None:
        """It can always be asked."""

    def route(self, alias: str, name: str) -> None:
        self.sampler.route(alias, name)

    def retire(self, name: str) -> None:
        self.sampler.retire(name)

    def close(self) -> None:
        self.sampler.close()

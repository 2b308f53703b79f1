"""Log-probs of token rows under served adapters: so many requests at once, each row a value or a reason."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from strop.engines.vllm.prompt_scores import prompt_logprobs, scoring_request
from strop.engines.vllm.sampler import VllmSampler
from strop.errors import InputError, ServerLost

ALONE = 2
"""How often a row is asked for by itself."""

Scores = NDArray[np.float64]


class Ask(NamedTuple):
    """Token ids to be read by a served name."""

    name: str
    ids: tuple[int, ...]


class Scorer:
    """Asks a server's sampler, `at_once` requests at a time."""

    def __init__(self, sampler: VllmSampler, at_once: int) -> None:
        self._sampler, self._at_once = sampler, at_once

    def score(self, asked: Sequence[Ask]) -> list[Scores | InputError]:
        """log p of each token given those before it, float64 [T] with nan first; or why there is none.

        Once the server was lost, the rows that have no scores yet are asked for one by one, when it is back;
        one with which it is lost time and again gets none. Raises EngineError where the server is given up,
        or an answer cannot be right.
        """
        return asyncio.run(self._all(asked))

    async def _all(self, asked: Sequence[Ask]) -> list[Scores | InputError]:
        room, lost = asyncio.Semaphore(self._at_once), asyncio.Event()

        async def within(one: Ask) -> Scores | InputError | None:
            async with room:
                found = None if lost.is_set() else await self._one(one)
            if isinstance(found, ServerLost):
                lost.set()
                return None
            return found

        found: list[Scores | InputError] = []
        refused: dict[tuple[int, ...], InputError] = {}
        for one, value in zip(asked, await asyncio.gather(*map(within, asked)), strict=True):
            known = refused.get(one.ids) or await self._alone(one) if value is None else value
            if isinstance(known, InputError):
                refused[one.ids] = known
            found.append(known)
        return found

    async def _alone(self, one: Ask) -> Scores | InputError:
        why: ServerLost | None = None
        for _ in range(ALONE):
            found = await self._one(one)
            if not isinstance(found, ServerLost):
                return found
            why = found
            # A server that reads the beginning of it is well; else it is given up after a few starts.
            await self._one(one._replace(ids=one.ids[:2]))
        return InputError(f"vLLM was lost {ALONE} times while it read this alone: {why}")

    async def _one(self, one: Ask) -> Scores | InputError | ServerLost:
        await self._sampler.ready()
        try:
            version, answer = await self._sampler.ask(one.name, partial(scoring_request, ids=one.ids))
        except (InputError, ServerLost) as failed:
            return failed
        found = prompt_logprobs(answer, version.remote, version.name, one.ids)
        self._sampler.answered += 1
        return found

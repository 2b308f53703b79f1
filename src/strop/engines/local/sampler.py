"""The local sampler: continuous batching of many conversations over transformers models, in one process."""

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import torch

from strop.engines.local.decoder import decoder_for
from strop.engines.local.flight import Request, Served
from strop.engines.local.traffic import Traffic
from strop.errors import EngineError, InputError
from strop.inference.sampling import OnToken, Sampled, SamplingParams

POLICY = "policy"
PATIENCE = 2.0


class LocalSampler:
    """Implements `strop.inference.sampling.Sampler` over transformers causal LMs; all methods thread-safe.

    One worker thread decodes. Every cohort has slots and batches of its own, so what a cohort samples
    depends on its prompts and seeds alone, bit for bit, whatever else is served at the same time. That
    holds while its agents answer within `patience` seconds; those that did not are counted in `late`.
    Requests without a session, or of one that is not open, start at once and share batches.
    `slots`: most live sessions of a cohort. `max_length`: most tokens of prompt and completion together.
    """

    def __init__(
        self, device: str, *, slots: int = 64, max_length: int = 2048, patience: float = PATIENCE
    ) -> None:
        self.device = torch.device(device)
        self.slots = slots
        self.max_length = max_length
        self._traffic = Traffic(slots, patience)
        self._served: dict[str, Served] = {}
        self._aliases: dict[str, str] = {}
        self._waiting: set[Future[Sampled]] = set()
        self._wake = threading.Condition()
        self._closed: str | None = None
        self._worker = threading.Thread(target=self._work, name="strop-sampler", daemon=True)
        self._worker.start()

    @property
    def closed(self) -> bool:
        """Whether nothing can be asked any more."""
        return self._closed is not None

    @property
    def notes(self) -> tuple[str, ...]:
        """What is slow with the models served, each said once."""
        with self._wake:
            notes = [served.decoder.note for served in self._served.values()]
        return tuple(dict.fromkeys(note for note in notes if note is not None))

    @property
    def late(self) -> int:
        """How often a cohort went on without a session that had not asked in time."""
        return self._traffic.late

    def serve(
        self,
        name: str,
        version: int,
        weights: Any,
        *,
        eos_ids: frozenset[int],
        decode: Callable[[Sequence[int]], str],
        slots: int | None = None,
    ) -> None:
        """Serve `weights`, a transformers causal LM, under a name of its own.

        The model, its config included, must belong to the sampler alone: its attention is replaced, and
        nothing may change it while it is served. `decode` turns sampled ids into text for stop strings.
        `slots`: most requests of one cohort that run at once. A model whose attention cannot be replaced
        is served without a cache, with a RuntimeWarning. Raises InputError for a name already taken.
        """
        with self._wake:
            others = [served.decoder for served in self._served.values()]
        decoder = decoder_for(weights.to(self.device), others)
        served = Served(
            name=name,
            version=version,
            decoder=decoder,
            eos_ids=eos_ids,
            decode=decode,
            slots=slots or self.slots,
        )
        with self._wake:
            self._refuse_if_closed()
            if name in self._served or name in self._aliases:
                raise InputError(f"{name} is already served: retire it first, or choose another name")
            self._served[name] = served

    def route(self, alias: str, name: str) -> None:
        """Let `alias` mean the served model `name` from the next request on."""
        with self._wake:
            if name not in self._served or alias in self._served:
                raise InputError(f"{alias} cannot mean {name}: {self._offer()}")
            self._aliases[alias] = name

    def retire(self, name: str) -> None:
        """Take no more requests for `name`; its memory is freed when the last one in flight has ended."""
        with self._wake:
            if name not in self._served:
                raise InputError(f"{name} is not served: {self._offer()}")
            aliases = [alias for alias, target in self._aliases.items() if target == name]
            if aliases:
                raise InputError(f"{name} still serves {', '.join(aliases)}: route that elsewhere first")
            self._served.pop(name).retired = True
            self._wake.notify_all()

    def models(self) -> list[str]:
        """Names that can be asked for: what "policy" means first, then the other models, then aliases."""
        with self._wake:
            policy = self._aliases.get(POLICY)
            return sorted(self._served, key=lambda name: name != policy) + list(self._aliases)

    def open(self, sessions: Sequence[str]) -> None:
        """Open a cohort. Raises InputError for a session that is open already or named twice."""
        with self._wake:
            self._refuse_if_closed()
            taken = [name for name in sessions if self._traffic.has(name)]
            if taken or len(set(sessions)) < len(sessions):
                raise InputError(f"sessions must be new and distinct; open already: {taken or 'named twice'}")
            self._traffic.open(sessions)
            self._wake.notify_all()

    def shut(self, session: str) -> None:
        """The session will ask for nothing more; unknown ids are ignored."""
        with self._wake:
            self._traffic.shut(session)
            self._wake.notify_all()

    def waits(self, session: str) -> bool:
        """Whether others of its cohort must end before the session is answered."""
        with self._wake:
            return self._traffic.waits(session)

    async def sample(
        self,
        prompt_ids: Sequence[int],
        params: SamplingParams,
        *,
        model: str,
        session: str | None = None,
        on_token: OnToken | None = None,
    ) -> Sampled:
        """One completion. Cancelling the await frees its slot.

        Raises InputError for a prompt that is empty, too long or not of the vocabulary, a parameter out of
        range, or a model not served; EngineError if logits are not finite or the worker has stopped.
        `on_token` is called in the event loop of the caller.
        """
        loop = asyncio.get_running_loop()
        future: Future[Sampled] = Future()

        def notify(token: int, logprob: float) -> None:
            if on_token is not None and not loop.is_closed():
                loop.call_soon_threadsafe(on_token, token, logprob)

        with self._wake:
            self._refuse_if_closed()
            served = self._find(model)
            _check(prompt_ids, params, served.decoder.vocab_size, self.max_length)
            self._post(
                Request(
                    served=served,
                    prompt=list(prompt_ids),
                    params=params,
                    budget=min(params.max_tokens, self.max_length - len(prompt_ids)),
                    session=session,
                    notify=notify if on_token is not None else None,
                    future=future,
                )
            )
        return await asyncio.wrap_future(future)

    async def ready(self) -> None:
        """It is always ready. Raises EngineError once it is closed."""
        self._refuse_if_closed()

    def close(self) -> None:
        """Stop the worker and fail what waits with EngineError. Calling it again does nothing."""
        with self._wake:
            self._closed = self._closed or "the sampler is closed"
            self._wake.notify_all()
        if threading.current_thread() is not self._worker:
            self._worker.join()

    def _post(self, request: Request) -> None:
        served = request.served

        def done(future: "Future[Sampled]") -> None:
            with self._wake:
                self._waiting.discard(future)
                served.in_flight -= 1
                self._wake.notify_all()

        served.in_flight += 1
        self._waiting.add(request.future)
        self._traffic.post(request)
        request.future.add_done_callback(done)
        self._wake.notify_all()

    def _work(self) -> None:
        try:
            with torch.inference_mode():
                while self._round():
                    pass
        except Exception as crash:  # noqa: BLE001 - the worker's boundary: whoever waits is told
            self._fail(f"the sampler's worker stopped: {crash!r}")
        else:
            self._fail("the sampler is closed")

    def _round(self) -> bool:
        """Wait for something to do, and make one step of it. False once closed."""
        with self._wake:
            moving = self._traffic.moving(time.monotonic())
            if self._closed is not None:
                return False
            if not moving:
                self._wake.wait(self._traffic.seconds_left(time.monotonic()))
                return True
        for party in moving:
            ended = party.advance()
            with self._wake:
                party.settle(ended)
            for flight in ended:
                flight.deliver()
        return True

    def _fail(self, reason: str) -> None:
        with self._wake:
            self._closed = self._closed or reason
            waiting = list(self._waiting)
        for future in waiting:
            if future.set_running_or_notify_cancel():
                future.set_exception(EngineError(reason))

    def _find(self, model: str) -> Served:
        served = self._served.get(self._aliases.get(model, model))
        if served is None:
            raise InputError(f"model {model} is not served: {self._offer()}")
        return served

    def _refuse_if_closed(self) -> None:
        if self._closed is not None:
            raise EngineError(self._closed)

    def _offer(self) -> str:
        names = [*self._served, *self._aliases]
        return f"choose from {', '.join(names)}" if names else "nothing is served yet"


def _check(prompt: Sequence[int], params: SamplingParams, vocab_size: int, max_length: int) -> None:
    """Refuse a request that cannot be answered. Raises InputError."""
    if not 0 < len(prompt) < max_length:
        raise InputError(f"a prompt of {len(prompt)} tokens: 1 to {max_length - 1} are possible")
    if min(prompt) < 0 or max(prompt) >= vocab_size:
        raise InputError(f"a prompt with ids outside the vocabulary of {vocab_size}")
    if params.max_tokens < 1:
        raise InputError(f"max_tokens is {params.max_tokens}: at least 1")
    if not 0 <= params.temperature < float("inf"):
        raise InputError(f"temperature is {params.temperature}: 0 or above")
    if not 0 < params.top_p <= 1:
        raise InputError(f"top_p is {params.top_p}: above 0, at most 1")
    if not 0 <= params.top_logprobs <= 20:
        raise InputError(f"top_logprobs is {params.top_logprobs}: 0 to 20")

"""A request on its way through a served model: what it asked for, what it has sampled, when it is over."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

import numpy as np

from strop.engines.local.decoder import Decoder
from strop.engines.local.draft import Echo, Habit
from strop.engines.local.draw import Choice, Drawn
from strop.errors import EngineError
from strop.inference.sampling import Sampled, SamplingParams


@dataclass(eq=False, slots=True, kw_only=True)
class Served:
    """One immutable model under its name. `decode` gives text for stop strings."""

    name: str
    version: int
    decoder: Decoder
    eos_ids: frozenset[int]
    decode: Callable[[Sequence[int]], str]
    slots: int
    in_flight: int = 0
    retired: bool = False


@dataclass(eq=False, slots=True, kw_only=True)
class Request:
    """What was asked, and the future that gets the answer. `budget`: most tokens to sample."""

    served: Served
    prompt: list[int]
    params: SamplingParams
    budget: int
    session: str | None
    notify: Callable[[int, float], None] | None
    future: "Future[Sampled]" = field(default_factory=Future)

    def cancelled(self) -> bool:
        """Whether the sender has given up."""
        return self.future.cancelled()


class Flight:
    """A request on its way: what it has sampled so far. `habit` guesses what it says next."""

    def __init__(self, request: Request, habit: Habit) -> None:
        self.request = request
        self._habit = habit
        self.cached = 0
        self.finish_reason: str | None = None
        self.error: EngineError | None = None
        self._drawn: list[Drawn] = []
        self._draft: list[int] = []
        self._echo = Echo(request.prompt)
        self._ahead: list[float] = []
        self._uniforms = np.random.Generator(np.random.Philox(key=request.params.seed % 2**64))
        # A stop string of n characters has at most 4n bytes, and every token but a control one has a byte.
        self._tail = 4 * max((len(stop) for stop in request.params.stop), default=0) + 4

    def unread(self) -> list[int]:
        """The tokens for the model to read next: the last one said, and guesses at what follows it."""
        self._draft = self._habit.draft(self._echo, self.request.budget - len(self._drawn) - 1)
        return [self._echo.ids[-1], *self._draft]

    def unguessed(self) -> list[int]:
        """The last token said, and no guesses for this pass."""
        self._draft = []
        return self._echo.ids[-1:]

    @property
    def over(self) -> bool:
        """Ended, by whatever reason."""
        return self.finish_reason is not None or self.error is not None or self.request.cancelled()

    @property
    def prefix(self) -> list[int]:
        """All of the prompt but its last token, which the first decode step reads."""
        return self.request.prompt[:-1]

    def choices(self) -> list[Choice]:
        """How the tokens after the unread ones are drawn: of the request and a token's index alone."""
        params = self.request.params
        missing = len(self._draft) + 1 - len(self._ahead)
        self._ahead.extend(float(self._uniforms.random()) for _ in range(missing))
        return [
            Choice(
                temperature=params.temperature,
                top_p=params.top_p,
                uniform=uniform,
                top_logprobs=params.top_logprobs,
            )
            for uniform in self._ahead[: len(self._draft) + 1]
        ]

    def accept(self, drawn: Sequence[Drawn | None]) -> int:
        """Take what was drawn as long as the guess before it was right. Returns how many were taken."""
        taken = 0
        for guess, one in zip([*self._draft, None], drawn, strict=True):
            self._take(one)
            taken += 1
            if self.over or one is None or one.token != guess:
                break
        del self._ahead[:taken]
        return taken

    def _take(self, drawn: Drawn | None) -> None:
        if drawn is None:
            self.error = EngineError(f"{self.request.served.name} gave logits that are not finite")
            return
        self._drawn.append(drawn)
        self._habit.learn(self._echo, drawn.token)
        self._echo.extend([drawn.token])
        if self.request.notify is not None:
            self.request.notify(drawn.token, drawn.logprob)
        if drawn.token in self.request.served.eos_ids or self._stopped():
            self.finish_reason = "stop"
        elif len(self._drawn) >= self.request.budget:
            self.finish_reason = "length"

    def deliver(self) -> None:
        """Answer the request, unless its sender has given up."""
        result = self._result()
        if not self.request.future.set_running_or_notify_cancel():
            return
        if self.error is not None:
            self.request.future.set_exception(self.error)
        else:
            self.request.future.set_result(result)

    def _result(self) -> Sampled:
        asked = self.request.params.top_logprobs > 0
        return Sampled(
            ids=tuple(drawn.token for drawn in self._drawn),
            logprobs=tuple(drawn.logprob for drawn in self._drawn),
            finish_reason=self.finish_reason or "abort",
            version=self.request.served.version,
            model=self.request.served.name,
            top=tuple(drawn.top for drawn in self._drawn) if asked else (),
            cached_tokens=self.cached,
        )

    def _stopped(self) -> bool:
        stops = self.request.params.stop
        if not stops:
            return False
        text = self.request.served.decode([drawn.token for drawn in self._drawn[-self._tail :]])
        return any(stop in text for stop in stops)

"""The serving side of the fake engine: a sampler over a softmax table, and a tokenizer of sixteen tokens."""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from strop.engines.tabular import Floats, contexts, log_softmax
from strop.errors import InputError
from strop.inference.sampling import OnToken, Sampled, SamplingParams
from strop.seeds import generator

END = 0
_LETTERS = "abcdefghijklmno"


class FakeTokenizer:
    """Token 0 is <end>; 1 to 15 are the letters a to o; every other character shares one of them."""

    chat_template = (
        "{% for message in messages %}{{ message['role'] }} {{ message['content'] }}<end>{% endfor %}"
        "{% if add_generation_prompt %}assistant {% endif %}"
    )
    bos_token = ""
    eos_token = "<end>"
    eos_ids = frozenset({END})
    special_tokens: Sequence[str] = ("<end>",)

    def encode(self, text: str, *, special: bool) -> list[int]:
        pieces = re.split("(<end>)", text) if special else [text]
        return [
            i for piece in pieces for i in ([END] if special and piece == "<end>" else map(_letter, piece))
        ]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(_LETTERS[i - 1] for i in ids if i != END)


def _letter(character: str) -> int:
    return 1 + (ord(character) - ord("a")) % len(_LETTERS)


@dataclass(frozen=True, slots=True)
class _Served:
    name: str
    version: int
    policy: Floats
    reference: Floats


class FakeSampler:
    """Implements `strop.inference.sampling.Sampler`; a draw depends on its prompt and seed alone.

    Served under the version's name and "policy"; the untrained table under "reference".
    """

    def __init__(self, *, order: int) -> None:
        self._order = order
        self._tokenizer = FakeTokenizer()
        self._served: _Served | None = None

    def serve(self, name: str, version: int, policy: Floats, reference: Floats) -> None:
        """Answer with this version from now on."""
        self._served = _Served(name, version, policy, reference)

    @property
    def served_logits(self) -> Floats:
        """The policy table that is served now, [C, V]."""
        return self._now().policy

    def models(self) -> Sequence[str]:
        return (self._now().name, "policy", "reference")

    def open(self, sessions: Sequence[str]) -> None:
        """Nothing to prepare: draws of sessions never meet."""

    def shut(self, session: str) -> None:
        """Nothing to free."""

    def waits(self, session: str) -> bool:
        """There is a place for everyone."""
        del session
        return False

    async def ready(self) -> None:
        """It is always ready."""

    async def sample(
        self,
        prompt_ids: Sequence[int],
        params: SamplingParams,
        *,
        model: str,
        session: str | None = None,
        on_token: OnToken | None = None,
    ) -> Sampled:
        del session
        if model not in self.models():
            raise InputError(f"model {model!r} is not served; there are: {', '.join(self.models())}")
        served = self._now()
        logits = served.reference if model == "reference" else served.policy
        draw = _Draw(logits, self._order, params)
        ids, logprobs, top, reason = list(prompt_ids), [], [], "length"
        for _ in range(params.max_tokens):
            token, logprob, best = draw.next(ids)
            ids.append(token)
            logprobs.append(logprob)
            top.append(best)
            if on_token is not None:
                on_token(token, logprob)
            if token == END or self._stops(ids[len(prompt_ids) :], params.stop):
                reason = "stop"
                break
            await asyncio.sleep(0)
        return Sampled(
            ids=tuple(ids[len(prompt_ids) :]),
            logprobs=tuple(logprobs),
            finish_reason=reason,
            version=served.version,
            model="reference" if model == "reference" else served.name,
            top=tuple(top) if params.top_logprobs else (),
        )

    def _now(self) -> _Served:
        assert self._served is not None, "the engine serves version 0 when it is made"
        return self._served

    def _stops(self, sampled: Sequence[int], stop: Sequence[str]) -> bool:
        return bool(stop) and any(end in self._tokenizer.decode(sampled) for end in stop)


class _Draw:
    """Token by token from one table, under one request's parameters."""

    def __init__(self, logits: Floats, order: int, params: SamplingParams) -> None:
        self._logits, self._order, self._params = logits, order, params
        self._rng = generator(params.seed, "fake-sampler")

    def next(self, ids: Sequence[int]) -> tuple[int, float, tuple[tuple[int, float], ...]]:
        tail = np.asarray(ids[-self._order :], dtype=np.int64)
        where = contexts(tail, self._logits.shape[1], self._order)[-1]
        logprobs = self._distribution(self._logits[where])
        token = int(self._rng.choice(len(logprobs), p=np.exp(logprobs)))
        best = np.argsort(-logprobs, kind="stable")[: self._params.top_logprobs]
        return token, float(logprobs[token]), tuple((int(i), float(logprobs[i])) for i in best)

    def _distribution(self, logits: Floats) -> Floats:
        """Log-probs that are sampled from: temperature (0 is greedy), then nucleus, renormalised."""
        if self._params.temperature == 0:
            return np.where(np.arange(len(logits)) == logits.argmax(), 0.0, -np.inf)
        logprobs = log_softmax(logits, self._params.temperature)
        if self._params.top_p >= 1:
            return logprobs
        order = np.argsort(-logprobs, kind="stable")
        mass_before = np.concatenate([[0.0], np.cumsum(np.exp(logprobs[order]))[:-1]])
        held = np.full_like(logprobs, -np.inf)
        kept = order[mass_before < self._params.top_p]
        held[kept] = log_softmax(logprobs[kept], 1.0)
        return held

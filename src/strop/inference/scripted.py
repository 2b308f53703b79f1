"""A sampler without a model, for examples and tests: it answers what a function says."""

import asyncio
import re
from collections.abc import Callable, Sequence

from strop.errors import InputError
from strop.inference.sampling import OnToken, Sampled, SamplingParams, Tokenizer

LOGPROB = -0.5
"""Log-prob of every scripted token: made up, but neither 0 nor 1, so that a lost one shows."""

_CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


class ByteTokenizer:
    """Every UTF-8 byte is a token, after the control tokens of the ChatML template."""

    chat_template = _CHATML
    bos_token = ""
    eos_token = "<|im_end|>"
    special_tokens = ("<|im_start|>", "<|im_end|>")
    eos_ids = frozenset({1})

    def encode(self, text: str, *, special: bool) -> list[int]:
        """Ids of the text's bytes; with `special` the spellings of control tokens become them."""
        first = len(self.special_tokens)
        pieces = re.split(f"({'|'.join(map(re.escape, self.special_tokens))})", text) if special else [text]
        ids: list[int] = []
        for index, piece in enumerate(pieces):
            if index % 2:
                ids.append(self.special_tokens.index(piece))
            else:
                ids.extend(byte + first for byte in piece.encode())
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Text of the ids without control tokens; broken characters become U+FFFD."""
        first = len(self.special_tokens)
        return bytes(token - first for token in ids if token >= first).decode(errors="replace")


class ScriptedSampler:
    """Answers every prompt with `answer(prompt_text)`, token by token, and notes what it was asked.

    `prompt_text` leaves control tokens out. `names` can be asked for, the first being the current
    version's. `pause_s` is slept between tokens; 0 still lets others run. Log-probs are LOGPROB.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        answer: Callable[[str], str],
        *,
        names: Sequence[str] = ("scripted-v0", "scripted"),
        version: int = 0,
        pause_s: float = 0.0,
    ) -> None:
        self.version = version
        self.opened: list[tuple[str, ...]] = []
        self.shut_sessions: list[str] = []
        self.asked: list[tuple[tuple[int, ...], SamplingParams, str | None]] = []
        self.cancelled = 0
        self._tokenizer = tokenizer
        self._answer = answer
        self._names = tuple(names)
        self._pause_s = pause_s

    def models(self) -> Sequence[str]:
        """The names it was given."""
        return self._names

    def open(self, sessions: Sequence[str]) -> None:
        """Note a cohort."""
        self.opened.append(tuple(sessions))

    def shut(self, session: str) -> None:
        """Note that a session has ended."""
        self.shut_sessions.append(session)

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
        """The scripted reply, cut by `max_tokens` and `stop`. Raises InputError for an unknown model."""
        if model not in self._names:
            raise InputError(f"model {model!r} is not served")
        self.asked.append((tuple(prompt_ids), params, session))
        text = self._answer(self._tokenizer.decode(prompt_ids))
        ids, finish_reason = self._cut(text, params)
        try:
            for token_id in ids:
                await asyncio.sleep(self._pause_s)
                if on_token is not None:
                    on_token(token_id, LOGPROB)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        top = tuple(((token_id, LOGPROB),) for token_id in ids) if params.top_logprobs else ()
        return Sampled(
            ids=tuple(ids),
            logprobs=(LOGPROB,) * len(ids),
            finish_reason=finish_reason,
            version=self.version,
            model=self._names[0],
            top=top,
        )

    def _cut(self, text: str, params: SamplingParams) -> tuple[list[int], str]:
        whole = [*self._tokenizer.encode(text, special=False), min(self._tokenizer.eos_ids)]
        ids: list[int] = []
        while len(ids) < min(len(whole), params.max_tokens):
            ids.append(whole[len(ids)])
            if params.stop and any(stop in self._tokenizer.decode(ids) for stop in params.stop):
                return ids, "stop"
        return ids, "stop" if ids == whole else "length"

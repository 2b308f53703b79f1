"""Build OpenAI's response objects: completions, stream chunks, log-probs, usage, models."""

import hashlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from strop.inference.sampling import Sampled

Decode = Callable[[Sequence[int]], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One sampled reply as it is answered: the assistant message, why it ended, what was sampled.

    `guard` is what a guard found of it; `held`: its tool calls were taken out, so that the message is not
    what was sampled.
    """

    index: int
    message: Mapping[str, Any]
    finish_reason: str
    sampled: Sampled
    problem: str | None = None
    guard: Mapping[str, Any] | None = None
    held: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """What all objects of one response share. `model` is the name asked for, until one has sampled."""

    response_id: str
    model: str
    prompt_tokens: int
    created: int = field(default_factory=lambda: int(time.time()))


def completion(envelope: Envelope, choices: Sequence[Choice], decode: Decode | None) -> dict[str, Any]:
    """The chat.completion object; log-probs are included where `decode` is given."""
    return {
        **_head(envelope, "chat.completion", choices[0].sampled),
        "choices": [
            {
                "index": choice.index,
                "message": {**choice.message, "refusal": None},
                "logprobs": logprobs(choice.sampled, decode) if decode else None,
                "finish_reason": choice.finish_reason,
                **guarded(choice),
            }
            for choice in choices
        ],
        "usage": usage(envelope, [choice.sampled for choice in choices]),
    }


def chunk(
    envelope: Envelope,
    index: int,
    delta: Mapping[str, Any],
    *,
    end: Choice | None = None,
    decode: Decode | None = None,
) -> dict[str, Any]:
    """One chat.completion.chunk; `end` makes it its choice's last, with log-probs if `decode` is given."""
    sampled = end.sampled if end else None
    choice = {
        "index": index,
        "delta": dict(delta),
        "logprobs": logprobs(sampled, decode) if sampled and decode else None,
        "finish_reason": end.finish_reason if end else None,
        **(guarded(end) if end else {}),
    }
    return {**_head(envelope, "chat.completion.chunk", sampled), "choices": [choice]}


def guarded(choice: Choice) -> dict[str, Any]:
    """The field of a choice that says what a guard found, where one looked."""
    return {} if choice.guard is None else {"strop_guard": dict(choice.guard)}


def usage_chunk(envelope: Envelope, sampled: Sequence[Sampled]) -> dict[str, Any]:
    """The extra chunk at the end of a stream that was asked for with include_usage."""
    head = _head(envelope, "chat.completion.chunk", sampled[0])
    return {**head, "choices": [], "usage": usage(envelope, sampled)}


def usage(envelope: Envelope, sampled: Sequence[Sampled]) -> dict[str, Any]:
    """Token counts: the prompt once, the replies summed; cached tokens are those of the prompt."""
    completion_tokens = sum(len(one.ids) for one in sampled)
    cached = min(envelope.prompt_tokens, max(one.cached_tokens for one in sampled))
    return {
        "prompt_tokens": envelope.prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": envelope.prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": cached, "audio_tokens": 0},
    }


def logprobs(sampled: Sampled, decode: Decode) -> dict[str, Any]:
    """Log-prob of every sampled token, the end-of-turn token (whose text is empty) included."""
    tops: Iterable[Sequence[tuple[int, float]]] = sampled.top or ((),) * len(sampled.ids)
    content = [
        {**_token(token_id, logprob, decode), "top_logprobs": [_token(*pair, decode) for pair in top]}
        for token_id, logprob, top in zip(sampled.ids, sampled.logprobs, tops, strict=True)
    ]
    return {"content": content, "refusal": None}


def model_object(name: str, created: int) -> dict[str, Any]:
    """One entry of GET /models."""
    return {"id": name, "object": "model", "created": created, "owned_by": "strop"}


def short_id(scope: str) -> str:
    """An id that is the same for the same scope: 24 hexadecimal digits."""
    return hashlib.sha256(scope.encode()).hexdigest()[:24]


def _head(envelope: Envelope, kind: str, sampled: Sampled | None) -> dict[str, Any]:
    return {
        "id": envelope.response_id,
        "object": kind,
        "created": envelope.created,
        "model": (sampled.model if sampled else "") or envelope.model,
        "system_fingerprint": f"strop-v{sampled.version}" if sampled else None,
    }


def _token(token_id: int, logprob: float, decode: Decode) -> dict[str, Any]:
    text = decode([token_id])
    part_of_character = "\ufffd" in text
    return {"token": text, "logprob": logprob, "bytes": None if part_of_character else list(text.encode())}

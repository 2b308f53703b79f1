"""Reading a chat completion. Servers differ, so nothing is taken on trust."""

import math
from collections.abc import Mapping
from typing import Any

from strop.judge.ask import Answer
from strop.judge.prices import Price
from strop.judge.transcript import valid_unicode
from strop.judge.verdict import Alternatives, Cost, Failure

MOST_TOKENS = 100_000_000
"""A count above it is no count: no model reads or writes so much in a call."""
PLACES = 16
"""Reply tokens whose alternatives are kept."""


def read_completion(completion: Any, price: Price | None, seconds: float, *, top_logprobs: int = 0) -> Answer:
    """The answer in whatever JSON a server sent: billed first, then read.

    What is not a chat completion is `transport`, a refusal without content `refusal`, and a reply without
    the log-probabilities that were asked for `transport`.
    """
    cost = usage_cost(_field(completion, "usage"), price, seconds)
    choices = _field(completion, "choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = _field(choice, "message")
    if not isinstance(message, Mapping):
        return Answer(failure=Failure.TRANSPORT, detail="the answer is not a chat completion", cost=cost)
    text = _text(_field(message, "content"))
    alternatives = _alternatives(_field(choice, "logprobs")) if top_logprobs else ()
    failure, detail = _defect(text, message, lacks_logprobs=top_logprobs > 0 and not any(alternatives))
    reason = _field(choice, "finish_reason")
    return Answer(
        text=text,
        finish_reason=reason if isinstance(reason, str) else None,
        failure=failure,
        detail=detail,
        alternatives=alternatives,
        cost=cost,
    )


def usage_cost(usage: Any, price: Price | None, seconds: float) -> Cost:
    """The cost of one call from a server's `usage`; unmetered where that is missing or cannot be true."""
    tokens_in, tokens_out = (_count(usage, name) for name in ("prompt_tokens", "completion_tokens"))
    if tokens_in is None or tokens_out is None:
        return unmetered(price, seconds)
    cached = _count(_field(usage, "prompt_tokens_details"), "cached_tokens") or 0
    cached = cached if cached <= tokens_in else 0
    return Cost(
        tokens_in=tokens_in,
        tokens_cached=cached,
        tokens_out=tokens_out,
        money=None if price is None else price.of(tokens_in, cached, tokens_out),
        seconds=seconds,
        calls=1,
    )


def unmetered(price: Price | None, seconds: float) -> Cost:
    """The cost of one call of which the server reported nothing."""
    return Cost(money=None if price is None else 0.0, seconds=seconds, calls=1, unmetered=1)


def _defect(text: str, message: Any, *, lacks_logprobs: bool) -> tuple[Failure | None, str]:
    if not text and _field(message, "refusal"):
        return Failure.REFUSAL, "the judge declined to judge"
    if text and lacks_logprobs:
        return Failure.TRANSPORT, "the endpoint gives no log-probabilities; the reply came without"
    return None, ""


def _text(content: Any) -> str:
    """The text, of content in parts the text parts together."""
    if isinstance(content, list):
        parts = [_field(part, "text") for part in content if _field(part, "type") == "text"]
        content = "".join(part for part in parts if isinstance(part, str))
    return valid_unicode(content) if isinstance(content, str) else ""


def _alternatives(logprobs: Any) -> Alternatives:
    """Tokens at each of the first places, likeliest first, the one taken among them; () where none came."""
    content = _field(logprobs, "content")
    places = content[:PLACES] if isinstance(content, list) else []
    return tuple(_place(place) for place in places)


def _place(place: Any) -> tuple[tuple[str, float], ...]:
    top = _field(place, "top_logprobs")
    found: dict[str, float] = {}
    for entry in [*(top if isinstance(top, list) else []), place]:
        token, value = _field(entry, "token"), _field(entry, "logprob")
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if isinstance(token, str) and number and math.isfinite(value):
            found.setdefault(valid_unicode(token), min(float(value), 0.0))
    return tuple(sorted(found.items(), key=lambda item: -item[1]))


def _count(usage: Any, name: str) -> int | None:
    value = _field(usage, name)
    number = isinstance(value, int) and not isinstance(value, bool)
    return value if number and 0 <= value <= MOST_TOKENS else None


def _field(thing: Any, name: str) -> Any:
    return thing.get(name) if isinstance(thing, Mapping) else None

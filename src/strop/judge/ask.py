"""The seam between judging and whoever answers: a request in, an answer out.

An endpoint (`strop.judge.endpoint`) fits it, and so does any async function of a request that returns
text: `async def ask(request): return await my_model(request.messages)`.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from strop.judge.verdict import Alternatives, Cost, Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One call to a judge: chat messages and the longest reply in tokens.

    `top_logprobs` above 0 asks for that many alternatives of every reply token; `repeat` tells apart
    calls that are meant to be drawn anew though their messages say the same.
    """

    messages: Sequence[Mapping[str, Any]]
    max_tokens: int
    top_logprobs: int = 0
    repeat: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What one call gave: text and finish reason, or a failure class; and its cost in either case.

    `alternatives` are, for each of the first reply tokens, the likeliest tokens with their natural-log
    probabilities, where they were asked for and given. `retried` counts by reason ("429", "503",
    "lost", ...) the requests that had to be repeated before this answer.
    """

    text: str = ""
    finish_reason: str | None = None
    failure: Failure | None = None
    detail: str = ""
    alternatives: Alternatives = ()
    cost: Cost = field(default_factory=Cost)
    retried: Mapping[str, int] = field(default_factory=dict)


Ask = Callable[[Request], Awaitable[Answer | str]]

"""The fields of a request that servers disagree about, and what one server turned out to take."""

import re
from collections.abc import Mapping
from typing import Any

MAX_TOKENS = "max_tokens"
TOP_LOGPROBS = "top_logprobs"
FEWER_LOGPROBS = 5
"""As many alternatives as every server that has any allows."""

_REPLACED = {MAX_TOKENS: "max_completion_tokens"}
_DISPENSABLE = ("temperature", "seed")
_LOGPROBS = re.compile(r"log_?probs", re.IGNORECASE)
_UNWANTED = re.compile(
    r"unsupported|not support|not permitted|not allowed|not enabled|not available|not accept"
    r"|unknown|unrecogni[sz]ed|unexpected|extra_forbidden|deprecated|cannot find|can't find"
    r"|is allowed for this model|only the default",
    re.IGNORECASE,
)


def complaint(text: str, param: str | None, sent: Mapping[str, Any]) -> str | None:
    """The field of `sent` that a server's refusal is about and that can be changed or left out, or None.

    `text` is the refusal in full, `param` the field that it names apart, if it does.
    """
    unwanted = _UNWANTED.search(text)
    known = [name for name in (*_REPLACED, *_DISPENSABLE) if name in sent]
    if unwanted and param in known:
        return param
    if TOP_LOGPROBS in sent and _LOGPROBS.search(text):
        return TOP_LOGPROBS if not unwanted and sent[TOP_LOGPROBS] > FEWER_LOGPROBS else None
    if not unwanted:
        return None
    return next((name for name in known if re.search(rf"\b{name}\b", text)), None)


def denies_logprobs(text: str, param: str | None, sent: Mapping[str, Any]) -> bool:
    """Whether a refusal says that there are no log-probabilities, where they were asked for."""
    about = _LOGPROBS.search(param or text)
    return TOP_LOGPROBS in sent and bool(about and _UNWANTED.search(text))


class Dialect:
    """What one server does not take, learned from its refusals."""

    def __init__(self) -> None:
        self._refused: set[str] = set()

    def learn(self, field: str) -> None:
        """From now on without `field`, or with what takes its place."""
        self._refused.add(field)

    def say(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """`fields` as this server takes them."""
        said = dict(fields)
        for field in self._refused & said.keys():
            if field == TOP_LOGPROBS:
                said[field] = min(said[field], FEWER_LOGPROBS)
                continue
            value = said.pop(field)
            if field in _REPLACED:
                said[_REPLACED[field]] = value
        return said

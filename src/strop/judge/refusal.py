"""How a reply says that there is no verdict: by its finish reason, by silence, or in words."""

import re

from strop.judge.verdict import Failure

_CUT_SHORT = ("length", "max_tokens")
_FILTERED = ("content_filter", "refusal", "safety")
_DECLINES = re.compile(
    r"\b(i['’]?m (really |very |so )?sorry|i am sorry|sorry, (but )?i|i apologi[sz]e|i must decline"
    r"|i (can ?not|can['’]t|won['’]t|will not)|i(['’]m| am) (not able|unable)"
    r"|as an ai\b|unable to (assist|help|comply))",
    re.IGNORECASE,
)
_LOOKED_AT = 400


def is_cut(finish_reason: str | None) -> bool:
    """Whether the token limit ended the reply."""
    return (finish_reason or "").lower() in _CUT_SHORT


def is_filtered(finish_reason: str | None) -> bool:
    """Whether the endpoint's content filter ended the reply."""
    return (finish_reason or "").lower() in _FILTERED


def declines(text: str) -> bool:
    """Whether the beginning of a reply without a verdict says that there will be none."""
    return _DECLINES.search(text[:_LOOKED_AT]) is not None


FILTERED = (Failure.REFUSAL, "the endpoint's content filter stopped the reply")
DECLINED = (Failure.REFUSAL, "the judge declined to judge")
EMPTY = (Failure.EMPTY, "the reply was empty")
CUT = (Failure.TRUNCATED, "the reply was cut by the token limit")

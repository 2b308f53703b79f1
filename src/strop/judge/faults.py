"""What a call's exception means: repeat it, say it otherwise, leave it unscored, or stop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Literal

from strop.errors import in_one_line
from strop.judge.dialect import complaint, denies_logprobs
from strop.judge.verdict import Failure

if TYPE_CHECKING:
    import openai

LONGEST_STATED_S = 60.0
LOST = "lost"
UNREACHED = "unreached"

_TOO_LONG = (
    "context_length", "context length", "context size", "context window", "maximum context", "too long",
    "too many tokens", "input token count",
)  # fmt: skip
_TOO_LARGE_FOR_THE_RATE = "request too large"
_NO_MONEY_LEFT = "insufficient_quota"
_NEVER_SENT = ("ConnectError", "ConnectTimeout", "PoolTimeout", "UnsupportedProtocol", "LocalProtocolError")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What to do after a call that gave no completion, and why.

    "repeat": a later call may go well; `reason` is "429", "503", ..., "lost" for a request that was
    cut off after it was sent, which the server may have charged for, or "unreached" for one that never
    got there; `stated_s` the seconds that the server asks to wait. "adapt": `reason` is the field to
    change. "fail": the class is `failure`. "stop": no call can go well; `detail` says what to do.
    """

    action: Literal["repeat", "adapt", "fail", "stop"]
    reason: str = ""
    detail: str = ""
    failure: Failure = Failure.TRANSPORT
    stated_s: float | None = None


def read_error(error: openai.APIError, sent: Mapping[str, Any]) -> Fault:
    """What an exception of the SDK means for a request with the fields `sent`."""
    import openai

    if isinstance(error, openai.APIStatusError):
        return _read_status(error, sent)
    cause = error.__cause__ or error
    never_sent = type(cause).__name__ in _NEVER_SENT
    if isinstance(error, openai.APITimeoutError) and not never_sent:
        return Fault(action="fail", failure=Failure.TIMEOUT, detail="no answer in time")
    if isinstance(error, openai.APIConnectionError):
        return Fault(action="repeat", reason=UNREACHED if never_sent else LOST, detail=in_one_line(cause))
    return Fault(action="fail", detail=in_one_line(error))


def _read_status(error: openai.APIStatusError, sent: Mapping[str, Any]) -> Fault:
    status, text = error.status_code, str(error)
    if status < 500 and status != 429:
        refused = _read_refusal(error, sent)
        if refused is not None:
            return refused
    if _too_long(status, text.lower()):
        return Fault(action="fail", failure=Failure.TOO_LONG, detail=in_one_line(error))
    stop = _no_call_goes_well(error)
    if stop is not None:
        return Fault(action="stop", detail=stop)
    if status in (408, 409, 429) or status >= 500:
        stated = stated_wait(error.response.headers)
        return Fault(action="repeat", reason=str(status), detail=in_one_line(error), stated_s=stated)
    return Fault(action="fail", detail=in_one_line(error))


def _read_refusal(error: openai.APIStatusError, sent: Mapping[str, Any]) -> Fault | None:
    """What a refusal says of the request's fields or words, None where it speaks of neither."""
    status, text = error.status_code, str(error)
    param = error.param if isinstance(error.param, str) else None
    if status in (400, 403, 422) and denies_logprobs(text, param, sent):
        detail = f"the endpoint gives no log-probabilities: {in_one_line(error)}"
        return Fault(action="fail", detail=detail)
    if status not in (400, 422) or _too_long(status, text.lower()):
        return None
    if error.code == "content_filter":
        return Fault(action="fail", failure=Failure.REFUSAL, detail=in_one_line(error))
    field = complaint(text, param, sent)
    return None if field is None else Fault(action="adapt", reason=field, detail=in_one_line(error))


def _too_long(status: int, text: str) -> bool:
    if status == 429:
        return _TOO_LARGE_FOR_THE_RATE in text
    return status == 413 or (status in (400, 422, 500) and any(words in text for words in _TOO_LONG))


def _no_call_goes_well(error: openai.APIStatusError) -> str | None:
    status = error.status_code
    if status in (401, 403):
        return f"the key was refused ({status}); check the key (judge.api_key_env)"
    if status == 404:
        return "no such model or address there (404); check judge.model and judge.base_url"
    if status == 402 or (status == 429 and _NO_MONEY_LEFT in (error.code, error.type)):
        return f"the account has nothing left to pay with ({status}); fill it or take another key"
    return None


def stated_wait(headers: Mapping[str, str]) -> float | None:
    """Seconds that a server asks to wait, at most LONGEST_STATED_S; None where it says nothing usable.

    Read from retry-after-ms, or Retry-After in seconds or as an HTTP date (RFC 9110, 10.2.3), which is
    taken against the server's own Date where there is one.
    """
    seconds = _number(headers.get("retry-after-ms"), 1000)
    if seconds is None:
        seconds = _number(headers.get("retry-after"), 1)
    if seconds is None:
        until = _date(headers.get("retry-after"))
        since = _date(headers.get("date")) or datetime.now(UTC)
        seconds = None if until is None else (until - since).total_seconds()
    return None if seconds is None or seconds <= 0 else min(seconds, LONGEST_STATED_S)


def _number(text: str | None, divisor: int) -> float | None:
    plain = text is not None and text.isascii() and text.replace(".", "", 1).isdecimal()
    return float(text) / divisor if text is not None and plain else None


def _date(text: str | None) -> datetime | None:
    try:
        date = parsedate_to_datetime(text or "")
    except (ValueError, TypeError):
        return None
    return date if date.tzinfo else date.replace(tzinfo=UTC)

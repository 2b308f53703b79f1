"""One call to a judge over the OpenAI protocol: an answer, or the class of what went wrong."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from strop.errors import Unreachable
from strop.judge.settings import JudgeSettings
from strop.judge.transcript import valid_unicode
from strop.judge.verdict import Cost, Failure

if TYPE_CHECKING:
    import openai

LONGEST_WAIT_S = 60.0
_TOO_LONG = ("context_length", "context length", "maximum context", "too long", "too many tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What one call gave: text and finish reason, or a failure class; and its cost in either case."""

    text: str = ""
    finish_reason: str | None = None
    failure: Failure | None = None
    detail: str = ""
    cost: Cost = field(default_factory=Cost)


def build_client(settings: JudgeSettings) -> openai.AsyncOpenAI:
    """A client that never repeats a call by itself: repetition is counted here, not inside the SDK."""
    import openai

    return openai.AsyncOpenAI(
        base_url=settings.base_url,
        api_key=settings.api_key,
        timeout=settings.timeout_s,
        max_retries=0,
    )


async def ask(
    client: openai.AsyncOpenAI,
    settings: JudgeSettings,
    messages: Sequence[Mapping[str, str]],
    max_tokens: int,
) -> Answer:
    """Ask once, repeating after 429, 5xx and lost connections with a growing wait, or the server's own.

    The deadline holds for each call. Raises Unreachable for a refused key or an unknown model.
    """
    begun = time.perf_counter()
    for repeat in range(settings.backoff + 1):
        outcome = await _call(client, settings, messages, max_tokens)
        if isinstance(outcome, Answer):
            return outcome
        if repeat < settings.backoff:
            await asyncio.sleep(_wait(outcome, repeat))
    return _failed(settings, Failure.TRANSPORT, str(outcome)[:300], begun)


async def _call(
    client: openai.AsyncOpenAI,
    settings: JudgeSettings,
    messages: Sequence[Mapping[str, str]],
    max_tokens: int,
) -> Answer | openai.APIError:
    """An answer, or an error that a later call may not meet."""
    import openai

    begun = time.perf_counter()
    request: dict[str, Any] = {
        "model": settings.model, "messages": list(messages), "max_tokens": max_tokens,
        "temperature": settings.temperature,
    }  # fmt: skip
    if settings.seed is not None:
        request["seed"] = settings.seed
    try:
        async with asyncio.timeout(settings.timeout_s):
            completion = await client.chat.completions.create(**request)
    except (TimeoutError, openai.APITimeoutError):
        return _failed(settings, Failure.TIMEOUT, f"no answer within {settings.timeout_s:g} s", begun)
    except (openai.AuthenticationError, openai.PermissionDeniedError) as error:
        raise Unreachable(
            f"judge at {settings.base_url}: the key was refused ({error.status_code}); check judge.api_key"
        ) from error
    except openai.NotFoundError as error:
        raise Unreachable(
            f"judge at {settings.base_url}: no model {settings.model!r} there (404); check judge.model"
        ) from error
    except openai.APIError as error:
        return error if _passing(error) else _refused(settings, error, begun)
    except ValueError as error:
        return _failed(settings, Failure.TRANSPORT, f"the answer is not JSON: {error}", begun)
    return _answer(completion, settings, begun)


def _passing(error: openai.APIError) -> bool:
    import openai

    if isinstance(error, openai.APIStatusError):
        return error.status_code in (408, 409, 429) or error.status_code >= 500
    return isinstance(error, openai.APIConnectionError)


def _refused(settings: JudgeSettings, error: openai.APIError, begun: float) -> Answer:
    text = str(error)
    too_long = any(words in text.lower() for words in _TOO_LONG)
    return _failed(settings, Failure.TOO_LONG if too_long else Failure.TRANSPORT, text[:300], begun)


def _wait(error: openai.APIError, repeat: int) -> float:
    """Seconds until the next call: the server's Retry-After where it states one, else 0.5, 1, 2, ..."""
    import openai

    stated = error.response.headers.get("retry-after", "") if isinstance(error, openai.APIStatusError) else ""
    seconds = float(stated) if stated.replace(".", "", 1).isdecimal() else 0.5 * 2.0**repeat
    return min(seconds, LONGEST_WAIT_S)


def _answer(completion: Any, settings: JudgeSettings, begun: float) -> Answer:
    """Servers differ, and the SDK checks little: whatever is not a chat completion is `transport`."""
    choices = getattr(completion, "choices", None)
    if not choices or getattr(choices[0], "message", None) is None:
        return _failed(settings, Failure.TRANSPORT, "the answer is not a chat completion", begun)
    refusal = getattr(choices[0].message, "refusal", None)
    content = choices[0].message.content
    return Answer(
        text=valid_unicode(content if isinstance(content, str) else ""),
        finish_reason=getattr(choices[0], "finish_reason", None),
        failure=Failure.REFUSAL if refusal and not content else None,
        detail="the judge declined to judge" if refusal and not content else "",
        cost=_cost(getattr(completion, "usage", None), settings, time.perf_counter() - begun),
    )


def _cost(usage: Any, settings: JudgeSettings, seconds: float) -> Cost:
    tokens_in, tokens_out = (getattr(usage, name, None) for name in ("prompt_tokens", "completion_tokens"))
    if not isinstance(tokens_in, int) or not isinstance(tokens_out, int):
        return Cost(money=settings.money(0, 0), seconds=seconds, calls=1, unmetered=1)
    money = settings.money(tokens_in, tokens_out)
    return Cost(tokens_in=tokens_in, tokens_out=tokens_out, money=money, seconds=seconds, calls=1)


def _failed(settings: JudgeSettings, failure: Failure, detail: str, begun: float) -> Answer:
    seconds = time.perf_counter() - begun
    return Answer(failure=failure, detail=detail, cost=_cost(None, settings, seconds))

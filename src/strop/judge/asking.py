"""One presentation put to the judge: from the cache, or asked, re-asked, billed and remembered."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

from strop.errors import StropError, in_one_line
from strop.judge.ask import Answer, Ask, Request
from strop.judge.cache import ReplyCache, cache_key
from strop.judge.conclude import Outcome, read_again
from strop.judge.ledger import Ledger
from strop.judge.presentation import Presentation
from strop.judge.prompt import reply_key
from strop.judge.settings import JudgeSettings
from strop.judge.verdict import Cost, Failure, Reply, Verdict, alternatives_of

QUOTED_CHARS = 2000
TOP_LOGPROBS = 20
DIGIT_TOKENS = 16
_FINAL = (Failure.TIMEOUT, Failure.TRANSPORT, Failure.TOO_LONG)


class Asking:
    """Puts presentations to a judge within the limits of `settings`, and bills every call.

    After `stop()` no call begins; those in flight end, and good replies are kept in the cache.
    """

    def __init__(self, settings: JudgeSettings, ledger: Ledger) -> None:
        self.settings = settings
        self.ledger = ledger
        self.stopped = False
        self._cache = None if settings.cache is None else ReplyCache(settings.cache)
        self._slots: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()

    async def outcome(self, ask: Ask, shown: Presentation) -> Outcome | None:
        """How this presentation ended. None where judging was stopped before its next call."""
        key = "" if self._cache is None else cache_key([_identity(ask), *shown.content])
        return self._remembered(key, shown) or await self._asked(ask, shown, key)

    async def _asked(self, ask: Ask, shown: Presentation, key: str) -> Outcome | None:
        replies: list[Reply] = []
        request = self._request(shown)
        async with self._slot():
            while True:
                if self.stopped:
                    return None
                if self._spent():
                    return _over_budget(shown, replies)
                answer = await self._call(ask, request)
                read, reply = self._read(shown, answer)
                replies.append(reply)
                if read.failure is None:
                    self._remember(key, reply)
                if read.failure in (None, *_FINAL) or len(replies) >= self.settings.attempts:
                    return Outcome(read=read, replies=replies, shown=shown.shown)
                request = _reask(request, shown, reply, read)

    def _request(self, shown: Presentation) -> Request:
        digit = shown.kind == "digit"
        return Request(
            messages=shown.prompt.messages,
            max_tokens=min(DIGIT_TOKENS, self.settings.max_tokens) if digit else self.settings.max_tokens,
            top_logprobs=TOP_LOGPROBS if digit else 0,
        )

    async def _call(self, ask: Ask, request: Request) -> Answer:
        """One answer, billed before anybody reads it. Only errors of ours, which are to be seen, pass."""
        self.ledger.started += 1
        begun = time.perf_counter()
        try:
            async with asyncio.timeout(self.settings.deadline_s):
                given = await ask(request)
            answer = given if isinstance(given, Answer) else _of_text(given, begun)
        except TimeoutError:
            detail = f"no answer within {self.settings.deadline_s:g} s"
            answer = Answer(failure=Failure.TIMEOUT, detail=detail, cost=_unmetered(begun))
        except StropError:
            raise
        except asyncio.CancelledError:
            # The server may have been at work: it is counted, though nobody knows for how much.
            self.ledger.bill(_unmetered(begun))
            raise
        except Exception as error:  # noqa: BLE001 - the boundary to a judge that is anybody's code
            answer = Answer(failure=Failure.TRANSPORT, detail=in_one_line(error), cost=_unmetered(begun))
        self.ledger.bill(answer.cost, answer.retried)
        return answer

    def _read(self, shown: Presentation, answer: Answer) -> tuple[Verdict, Reply]:
        reply = Reply(
            text=answer.text,
            finish_reason=answer.finish_reason,
            nonce=shown.prompt.nonce,
            shown=shown.shown,
            presentation=shown.number,
            alternatives=answer.alternatives,
            cost=answer.cost,
        )
        if answer.failure is not None:
            read = Verdict(failure=answer.failure, detail=answer.detail)
        else:
            read = read_again(reply, digit=shown.kind == "digit")
        return read, replace(reply, failure=read.failure)

    def _slot(self) -> asyncio.Semaphore:
        """The limit on calls at once; a semaphore belongs to one event loop, a judge may meet several."""
        loop = asyncio.get_running_loop()
        return self._slots.setdefault(loop, asyncio.Semaphore(self.settings.concurrency))

    def _spent(self) -> bool:
        limits, money = self.settings, self.ledger.cost.money
        calls = limits.max_calls is not None and self.ledger.started >= limits.max_calls
        return calls or (limits.max_money is not None and (money is None or money >= limits.max_money))

    def _remembered(self, key: str, shown: Presentation) -> Outcome | None:
        kept = None if self._cache is None else self._cache.get(key)
        if kept is None:
            return None
        try:
            reply = _from_cache(kept, shown)
        except (KeyError, TypeError, ValueError):
            return None
        read = read_again(reply, digit=shown.kind == "digit")
        if read.failure is not None:
            return None
        return Outcome(read=replace(read, flags=(*read.flags, "cached")), replies=[reply], shown=shown.shown)

    def _remember(self, key: str, reply: Reply) -> None:
        if self._cache is not None:
            self._cache.put(
                key,
                {
                    "text": reply.text,
                    "finish_reason": reply.finish_reason,
                    "nonce": reply.nonce,
                    "alternatives": reply.alternatives,
                },
            )


def _from_cache(kept: Mapping[str, Any], shown: Presentation) -> Reply:
    return Reply(
        text=str(kept["text"]),
        finish_reason=kept["finish_reason"],
        nonce=str(kept["nonce"]),
        shown=shown.shown,
        presentation=shown.number,
        alternatives=alternatives_of(kept["alternatives"]),
    )


def _identity(ask: Ask) -> object:
    """What tells this judge's answers from another's: an endpoint says it itself, a function is its name."""
    own = getattr(ask, "identity", None)
    return own or [getattr(ask, "__module__", ""), getattr(ask, "__qualname__", type(ask).__qualname__)]


def _of_text(text: str, begun: float) -> Answer:
    """Bare text says nothing of its price, so that the whole bill is unknown."""
    return Answer(text=text, cost=replace(_unmetered(begun), money=None))


def _unmetered(begun: float) -> Cost:
    return Cost(seconds=time.perf_counter() - begun, calls=1, unmetered=1)


def _over_budget(shown: Presentation, replies: list[Reply]) -> Outcome:
    read = Verdict(failure=Failure.OVER_BUDGET, detail="the judge's ceiling of calls or money is reached")
    return Outcome(read=read, replies=replies, shown=shown.shown)


def _reask(request: Request, shown: Presentation, reply: Reply, read: Verdict) -> Request:
    """The same prompt, the reply and what is wrong with it; twice the tokens after a cut reply."""
    if shown.kind == "digit":
        form = "with one digit from 0 to 9 and nothing else"
    else:
        form = (
            f'in one line of JSON under the key "{reply_key(shown.prompt.nonce)}", '
            f'with ids "1" to "{len(shown.shown)}", each once'
        )
    complaint = f"That reply cannot be used: {read.detail}. Reply again {form}."
    return replace(
        request,
        messages=[
            *shown.prompt.messages,
            {"role": "assistant", "content": reply.text[:QUOTED_CHARS] or "(empty)"},
            {"role": "user", "content": complaint},
        ],
        max_tokens=request.max_tokens * (2 if read.failure is Failure.TRUNCATED else 1),
    )

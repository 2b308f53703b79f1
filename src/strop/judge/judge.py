"""Judging a group: one call, its reply read, one re-ask that names the defect, every attempt billed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from strop.judge.cache import ReplyCache, cache_key
from strop.judge.client import Answer, ask, build_client
from strop.judge.ledger import Ledger
from strop.judge.prompt import Prompt, render_prompt, reply_key
from strop.judge.reply import parse_reply
from strop.judge.rubric import default_rubric
from strop.judge.settings import JudgeSettings
from strop.judge.transcript import render_message
from strop.judge.verdict import Cost, Failure, Reply, Verdict
from strop.trajectory.model import Group, Trajectory

if TYPE_CHECKING:
    import openai

T = TypeVar("T")

TIED_SCORE = 0.5
QUOTED_CHARS = 2000
_FINAL = (Failure.TIMEOUT, Failure.TRANSPORT, Failure.TOO_LONG)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """A prompt, and the trajectory ids that each id in it stands for."""

    group_id: str
    prompt: Prompt
    shown: Mapping[str, tuple[str, ...]]


class Judge:
    """An LLM judge: `await judge(group, rng=rng)` gives a Verdict.

    Only trajectories that are not unscored are judged. Identical ones, by what the judge would read,
    are shown once and share a score. Fewer than two different ones: no call, every score 0.5, flag
    "identical" or "single", so that the group counts as tied. Nothing a judge does raises, except
    that Unreachable is raised for a refused key or an unknown model. `client` takes the place of the
    one made from the settings' address and key. One event loop a judge.
    """

    def __init__(
        self, settings: JudgeSettings, rubric: str | None = None, *, client: openai.AsyncOpenAI | None = None
    ) -> None:
        self.settings = settings
        self.rubric = default_rubric() if rubric is None else rubric
        self.ledger = Ledger()
        self._client = None if client is None else client.with_options(max_retries=0)
        self._cache = None if settings.cache is None else ReplyCache(settings.cache)
        self._slots = asyncio.Semaphore(settings.concurrency)

    async def __call__(
        self, group: Group, *, rng: np.random.Generator, session_url: str | None = None
    ) -> Verdict:
        """Judge one group in an order drawn from `rng`. `session_url` replaces the base URL for this call."""
        verdict = await self._verdict(group, rng, session_url)
        self.ledger.record(verdict)
        return verdict

    async def close(self) -> None:
        """Close the connections. Calling it again does nothing."""
        if self._client is not None:
            await self._client.close()
            self._client = None

    async def _verdict(self, group: Group, rng: np.random.Generator, session_url: str | None) -> Verdict:
        judged = [t for t in group.trajectories if t.unscored is None]
        alike = _alike(judged)
        if len(alike) < 2:
            return _without_call(group.group_id, judged)
        prompt = render_prompt([same[0] for same in alike], self.rubric, rng)
        ids = {same[0].trajectory_id: tuple(t.trajectory_id for t in same) for same in alike}
        shown = {place: ids[first] for place, first in prompt.shown.items()}
        case = _Case(group_id=group.group_id, prompt=prompt, shown=shown)
        size = len(prompt.context) + sum(len(text) for text in prompt.attempts.values())
        if size > self.settings.max_prompt_chars:
            detail = f"{size} characters to judge, judge.max_prompt_chars is {self.settings.max_prompt_chars}"
            return Verdict(group_id=group.group_id, failure=Failure.TOO_LONG, detail=detail)
        return self._remembered(case) or await self._judge(case, session_url)

    async def _judge(self, case: _Case, session_url: str | None) -> Verdict:
        replies: list[Reply] = []
        messages: list[Mapping[str, str]] = list(case.prompt.messages)
        max_tokens = self.settings.max_tokens
        async with self._slots:
            while True:
                if self._spent():
                    detail = "the judge's ceiling of calls or money is reached"
                    return _finish(case, Verdict(failure=Failure.OVER_BUDGET, detail=detail), replies)
                self.ledger.started += 1
                answer = await ask(self._connection(session_url), self.settings, messages, max_tokens)
                self.ledger.bill(answer.cost)
                read = _read(case, answer)
                replies.append(_reply(case, answer, read))
                if read.failure is None:
                    self._remember(case, answer)
                if read.failure in (None, *_FINAL) or len(replies) >= self.settings.attempts:
                    return _finish(case, read, replies)
                messages = [*case.prompt.messages, *_reask(case, answer.text, read.detail)]
                max_tokens = max_tokens * 2 if read.failure is Failure.TRUNCATED else max_tokens

    def _spent(self) -> bool:
        limits, cost = self.settings, self.ledger.cost
        calls = limits.max_calls is not None and self.ledger.started >= limits.max_calls
        return calls or (limits.max_money is not None and (cost.money or 0.0) >= limits.max_money)

    def _connection(self, session_url: str | None) -> openai.AsyncOpenAI:
        if self._client is None:
            self._client = build_client(self.settings)
        return self._client if session_url is None else self._client.with_options(base_url=session_url)

    def _remembered(self, case: _Case) -> Verdict | None:
        kept = None if self._cache is None else self._cache.get(self._key(case))
        if kept is None:
            return None
        text, reason, nonce = (kept.get(name) for name in ("text", "finish_reason", "nonce"))
        read = parse_reply(text, list(case.shown), reason, nonce)
        if read.failure is not None:
            return None
        answer = Answer(text=text or "", finish_reason=reason, cost=Cost())
        reply = replace(_reply(case, answer, read), nonce=nonce or "")
        return _finish(case, replace(read, flags=(*read.flags, "cached")), [reply])

    def _remember(self, case: _Case, answer: Answer) -> None:
        if self._cache is not None:
            nonce = case.prompt.nonce
            value = {"text": answer.text, "finish_reason": answer.finish_reason, "nonce": nonce}
            self._cache.put(self._key(case), value)

    def _key(self, case: _Case) -> str:
        return cache_key(self.settings, self.rubric, case.prompt)


def _alike(trajectories: Sequence[Trajectory]) -> list[list[Trajectory]]:
    """The trajectories, those together that read the same to the judge, in order of first occurrence."""
    by_text: dict[tuple[str, ...], list[Trajectory]] = {}
    for trajectory in trajectories:
        text = tuple(render_message(message) for message in trajectory.messages)
        by_text.setdefault(text, []).append(trajectory)
    return list(by_text.values())


def _without_call(group_id: str, judged: Sequence[Trajectory]) -> Verdict:
    return Verdict(
        group_id=group_id,
        scores={t.trajectory_id: TIED_SCORE for t in judged},
        flags=("identical" if len(judged) > 1 else "single",),
        detail="no call: there is nothing to compare",
    )


def _read(case: _Case, answer: Answer) -> Verdict:
    if answer.failure is not None:
        return Verdict(failure=answer.failure, detail=answer.detail)
    return parse_reply(answer.text, list(case.shown), answer.finish_reason, case.prompt.nonce)


def _reply(case: _Case, answer: Answer, read: Verdict) -> Reply:
    return Reply(
        text=answer.text,
        finish_reason=answer.finish_reason,
        nonce=case.prompt.nonce,
        shown=case.shown,
        failure=read.failure,
        cost=answer.cost,
    )


def _reask(case: _Case, text: str, defect: str) -> list[Mapping[str, str]]:
    ids = f'"1" to "{len(case.shown)}"'
    complaint = (
        f"That reply cannot be used: {defect}. Reply again in one line of JSON "
        f'under the key "{reply_key(case.prompt.nonce)}", with ids {ids}, each once.'
    )
    return [
        {"role": "assistant", "content": text[:QUOTED_CHARS] or "(empty)"},
        {"role": "user", "content": complaint},
    ]


def _finish(case: _Case, read: Verdict, replies: Sequence[Reply]) -> Verdict:
    """The verdict on shown ids as one on trajectory ids, with what it took to get it."""
    scores = None if read.scores is None else _spread(read.scores, case)
    return replace(
        read,
        group_id=case.group_id,
        scores=scores,
        explanations=_spread(read.explanations, case),
        flags=(*read.flags, *(("reasked",) if len(replies) > 1 else ())),
        cost=sum((reply.cost for reply in replies), Cost()),
        replies=tuple(replies),
    )


def _spread(by_place: Mapping[str, T], case: _Case) -> dict[str, T]:
    return {name: by_place[p] for p, names in case.shown.items() if p in by_place for name in names}

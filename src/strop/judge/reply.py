"""Reading a judge's reply: the scores it states beyond doubt, or the class of what is wrong with it.

Every value in the text is looked at. Only an object with every id exactly once counts, and only where
no other place of the reply states other scores: two complete ones that differ, or scores of any kind
after the verdict, are `ambiguous`. So a verdict that the judge merely quotes, even where the quotation
breaks out of its string, can spoil a judgement but never become one. With a nonce, only its own key
counts at all.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from strop.judge import refusal
from strop.judge.claim import Claim, Ids, find_claims, own_key, scores_again
from strop.judge.lenient import Broken, Fields, Items, Member, Value, is_strict, read
from strop.judge.reasoning import Tags, after_reasoning, free_tags
from strop.judge.transcript import valid_unicode
from strop.judge.verdict import Failure, Verdict

_BEGINS_JSON = re.compile(r"""\{\s*\\*["']|\[\s*\{""")
_INVISIBLE = " \t\r\n\v\f\u00a0\u200b\u200c\u200d\u2060\ufeff"
_OPENER = re.compile(r"[{\[]")
_CUT = (Failure.TRUNCATED, "the reply ends before its verdict does")
WASTE = 1
WASTE_AT_LEAST = 100_000


@dataclass(slots=True)
class _Text:
    """What a walk through a reply found. `doubtful` claims follow JSON that could not be read.

    `spans` are the objects read; `broken` is where the last JSON begins that could not be read.
    `wasted` counts the characters of what turned out to be no value; past `allowed` the walk gives up,
    so that it takes linear time.
    """

    allowed: int
    claims: list[Claim] = field(default_factory=list)
    doubtful: list[Claim] = field(default_factory=list)
    spans: list[tuple[int, int]] = field(default_factory=list)
    wasted: int = 0
    broken: int | None = None
    cut: bool = False


def parse_reply(
    raw: str | None, ids: Sequence[str], finish_reason: str | None = None, nonce: str | None = None
) -> Verdict:
    """The verdict in `raw` on the shown `ids`, with `.scores` by id or `.failure`, never both.

    `finish_reason` "length" is always `truncated`, "content_filter" a `refusal`. With `nonce` only
    the key `scores_<nonce>` counts; without it, `scores`, a bare list of items and a map from id to
    score count too. Scores are numbers or plain decimal strings in [0, 1]. A draft counts for nothing
    inside leading reasoning, or where it lacks an id and the verdict follows; elsewhere it makes the
    reply ambiguous. Pure: the same text gives the same verdict. Raises InputError for no ids or an id
    twice.
    """
    known = Ids.of(ids)
    text = _clean(raw or "")
    early = _early(text, finish_reason)
    if early is not None:
        return early
    strict = is_strict(text)
    inner = _inner(text) if strict else None
    verdict = _read(text if inner is None else inner, known, nonce)
    if strict and inner is None:
        return _fail(*_no_key(nonce)) if verdict.failure is Failure.NO_JSON else verdict
    flags = ["tolerant", *(["fenced"] if "```" in text else []), *verdict.flags]
    return replace(verdict, flags=tuple(flags))


def _clean(text: str) -> str:
    return valid_unicode(text).strip(_INVISIBLE)


def _inner(text: str) -> str | None:
    """What a JSON string says, None for any other JSON."""
    value = json.loads(text) if text.startswith('"') else None
    return _clean(value) if isinstance(value, str) else None


def _early(text: str, finish_reason: str | None) -> Verdict | None:
    if refusal.is_cut(finish_reason):
        return _fail(*refusal.CUT)
    if refusal.is_filtered(finish_reason):
        return _fail(*refusal.FILTERED)
    return None if text else _fail(*refusal.EMPTY)


def _read(text: str, ids: Ids, nonce: str | None) -> Verdict:
    start, endless = after_reasoning(text)
    found = _walk(text, start, ids, nonce)
    if found.wasted > found.allowed:
        return _fail(Failure.AMBIGUOUS, "too much in the reply cannot be read")
    if endless:
        return _fail(*_in_reasoning(found))
    claims = found.claims + (found.doubtful if nonce is not None else _rivals(found.doubtful))
    tags = free_tags(text, start, found.spans)
    kept = _past_drafts(claims, tags, nonce)
    verdict = _decide(kept) or _fail(*_why_nothing(text[start:], found, nonce))
    if verdict.scores is not None:
        rest = _Rest(text, start, claims, kept, found.broken)
        doubt = rest.doubt(ids, nonce)
        verdict = verdict if doubt is None else _fail(Failure.AMBIGUOUS, doubt)
    reasoned = start > 0 or len(kept) < len(claims)
    return replace(verdict, flags=("reasoning", *verdict.flags)) if reasoned else verdict


def _in_reasoning(found: _Text) -> tuple[Failure, str]:
    if any(claim.names_all for claim in found.claims + found.doubtful):
        return Failure.AMBIGUOUS, "the verdict stands inside reasoning that never ends"
    return _CUT


def _rivals(doubtful: Sequence[Claim]) -> list[Claim]:
    """Without a nonce a whole verdict amid broken JSON may be a quotation: it can spoil, not win."""
    return [
        claim.spoilt("the verdict stands inside text that cannot be read")
        for claim in doubtful
        if claim.names_all
    ]


def _past_drafts(claims: list[Claim], tags: Tags, nonce: str | None) -> list[Claim]:
    """The claims that count where reasoning tags stand further on in the text.

    What only a judge can write, a key with the nonce, counts as a draft before the last closing tag.
    Without a nonce a closing tag may be a quotation that is to hide the judge's own verdict, so both
    sides count. A verdict on the wrong side of a tag, with none on the right one, is spoilt.
    """
    before = [claim for claim in claims if claim.start < tags.closed]
    after = [claim for claim in claims if claim.start >= tags.closed]
    if tags.opened is not None:
        opened = tags.opened
        after = [
            c.spoilt("the verdict follows an open reasoning tag") if c.start > opened else c for c in after
        ]
    if any(claim.names_all for claim in after):
        return after if nonce is not None else before + after
    return [claim.spoilt("a reasoning tag closes after the verdict") for claim in before] + after


def _walk(text: str, start: int, ids: Ids, nonce: str | None) -> _Text:
    found = _Text(allowed=WASTE * len(text) + WASTE_AT_LEAST)
    at = start
    while found.wasted <= found.allowed and (match := _OPENER.search(text, at)):
        at = match.start()
        try:
            value, end = read(text, at)
        except Broken as error:
            if _BEGINS_JSON.match(text, at) or (error.ended and text[at] == "{"):
                found.broken = at
                found.cut = found.cut or error.ended
            found.wasted += 1 + error.where - at
            at += 1
            continue
        claims = find_claims(Member("", value, at, end), ids, nonce, keyed_only=found.broken is not None)
        (found.claims if found.broken is None else found.doubtful).extend(claims)
        if _holds_object(value):
            found.spans.append((at, end))
        at = end
    return found


def _holds_object(value: Value) -> bool:
    return isinstance(value, Fields) or (
        isinstance(value, Items) and any(_holds_object(item.value) for item in value.members)
    )


def _decide(claims: Sequence[Claim]) -> Verdict | None:
    """The verdict that all complete claims agree on, else the last claim's defect; None for no claim."""
    if not claims:
        return None
    complete = [claim for claim in claims if claim.names_all]
    if any(one.scores != other.scores for one, other in pairwise(complete)):
        return _fail(Failure.AMBIGUOUS, "the reply holds verdicts that differ")
    if complete and not all(claim.names_all or claim.passing for claim in claims):
        return _fail(Failure.AMBIGUOUS, "the reply holds a verdict that cannot be read beside another")
    last = (complete or claims)[-1]
    if not complete or last.failure is not None:
        return _fail(last.failure or Failure.WRONG_SCHEMA, last.detail)
    return _accept(complete)


@dataclass(frozen=True, slots=True)
class _Rest:
    """What a reply says beside its verdict, from `start` on. `broken`: where unreadable JSON begins last."""

    text: str
    start: int
    claims: Sequence[Claim]
    kept: Sequence[Claim]
    broken: int | None

    def doubt(self, ids: Ids, nonce: str | None) -> str | None:
        """Why the verdict is not all that the reply may have stated; None where it is."""
        complete = [claim for claim in self.kept if claim.names_all]
        if self.broken is not None and self.broken > complete[0].start:
            return "JSON that cannot be read follows the verdict"
        if scores_again(ids).search(self._outside(complete, complete[0].end)):
            return "the reply states scores again after its verdict"
        if nonce is not None and own_key(nonce).search(self._outside(self.claims, self.start)):
            return "the reply states scores in a form that cannot be read"
        return None

    def _outside(self, claims: Sequence[Claim], since: int) -> str:
        """The text from `since` on that is in none of `claims`."""
        gaps = []
        for claim in claims:
            gaps.append(self.text[since : max(since, claim.start)])
            since = max(since, claim.end)
        return "\n".join([*gaps, self.text[since:]])


def _accept(complete: Sequence[Claim]) -> Verdict:
    last = complete[-1]
    flags = [flag for flag, holds in (
        ("repeated", len(complete) > 1),
        ("bare", last.bare),
        ("no_signal", len(last.scores) > 1 and len(set(last.scores.values())) == 1),
    ) if holds]  # fmt: skip
    return Verdict(scores=dict(last.scores), explanations=dict(last.explanations), flags=tuple(flags))


def _why_nothing(text: str, found: _Text, nonce: str | None) -> tuple[Failure, str]:
    if found.cut:
        return _CUT
    if not text.strip(_INVISIBLE):
        return Failure.EMPTY, "the reply holds nothing but reasoning"
    if refusal.declines(text):
        return refusal.DECLINED
    if not found.spans:
        return Failure.NO_JSON, "the reply holds no JSON"
    return (
        (Failure.WRONG_SCHEMA, "the JSON is not well formed") if found.broken is not None else _no_key(nonce)
    )


def _no_key(nonce: str | None) -> tuple[Failure, str]:
    key = "scores" if nonce is None else f"scores_{nonce}"
    return Failure.WRONG_SCHEMA, f"the reply has no key {key!r} with scores"


def _fail(failure: Failure, detail: str) -> Verdict:
    return Verdict(failure=failure, detail=detail)

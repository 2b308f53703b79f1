"""Reading a judge's reply: the scores it states beyond doubt, or the class of what is wrong with it.

Strict JSON first; where that fails, every value in the text is looked at. Only an object with every
id exactly once counts. Two of them that differ are `ambiguous`, so a verdict that the judge merely
quotes can spoil a judgement but never become one. With a nonce, only its own key counts at all.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from strop.judge.claim import Claim, Ids, find_claims
from strop.judge.lenient import Broken, Fields, Value, read, read_strict
from strop.judge.transcript import valid_unicode
from strop.judge.verdict import Failure, Verdict

_THINK = re.compile(r"\s*<(think|thinking|thought|reasoning|analysis|reflection)\b[^<>]*>", re.IGNORECASE)
_BEGINS_JSON = re.compile(r"""\{\s*["']|\[\s*\{""")
_INVISIBLE = " \t\r\n\v\f\u00a0\u200b\u200c\u200d\u2060\ufeff"
_OPENER = re.compile(r"[{\[]")
_REFUSAL = re.compile(
    r"\b(i['’]?m (really |very |so )?sorry|i am sorry|sorry, (but )?i|i apologi[sz]e|i must decline"
    r"|i (can ?not|can['’]t|won['’]t|will not)|i(['’]m| am) (not able|unable)"
    r"|as an ai\b|unable to (assist|help|comply))",
    re.IGNORECASE,
)
MAX_MISREAD = 200
_CUT = (Failure.TRUNCATED, "the reply ends before its verdict does")


@dataclass(slots=True)
class _Text:
    """What a walk through a reply found. `doubtful` claims follow JSON that could not be read.

    `misread` counts brackets that begin no value; past MAX_MISREAD the walk gives up.
    """

    claims: list[Claim] = field(default_factory=list)
    doubtful: list[Claim] = field(default_factory=list)
    objects: int = 0
    misread: int = 0
    cut: bool = False


def parse_reply(
    raw: str | None, ids: Sequence[str], finish_reason: str | None = None, nonce: str | None = None
) -> Verdict:
    """The verdict in `raw` on the shown `ids`, with `.scores` by id or `.failure`, never both.

    `finish_reason` "length" is always `truncated`, "content_filter" a `refusal`. With `nonce` only
    the key `scores_<nonce>` counts; without it, `scores`, a bare list of items and a map from id to
    score count too. Scores are numbers or plain decimal strings in [0, 1]. Pure: the same text
    gives the same verdict. Raises InputError for no ids or an id twice.
    """
    known = Ids.of(ids)
    text = valid_unicode(raw or "").strip(_INVISIBLE)
    early = _early(text, finish_reason)
    if early is not None:
        return early
    try:
        value = read_strict(text)
    except ValueError:
        return _tolerant(text, known, nonce)
    if isinstance(value, str):
        return _tolerant(value, known, nonce)
    claims = find_claims(value, known, nonce)
    return _decide(claims) or _fail(Failure.WRONG_SCHEMA, _no_key(nonce))


def _early(text: str, finish_reason: str | None) -> Verdict | None:
    if finish_reason == "length":
        return _fail(Failure.TRUNCATED, "the reply was cut by the token limit")
    if finish_reason == "content_filter":
        return _fail(Failure.REFUSAL, "the endpoint's content filter stopped the reply")
    return None if text else _fail(Failure.EMPTY, "the reply was empty")


def _tolerant(text: str, ids: Ids, nonce: str | None) -> Verdict:
    start, open_reasoning = _after_reasoning(text)
    found = _walk(text, start, ids, nonce)
    if found.misread > MAX_MISREAD:
        verdict = _fail(Failure.AMBIGUOUS, "too much in the reply cannot be read")
    elif open_reasoning:
        verdict = _fail(*_in_reasoning(found))
    else:
        claims = found.claims + (found.doubtful if nonce is not None else _rivals(found.doubtful))
        verdict = _decide(claims) or _fail(*_why_nothing(text[start:], found, nonce))
    flags = ["tolerant", *(["reasoning"] if start else []), *(["fenced"] if "```" in text else [])]
    return replace(verdict, flags=(*flags, *verdict.flags))


def _in_reasoning(found: _Text) -> tuple[Failure, str]:
    if any(claim.names_all for claim in found.claims + found.doubtful):
        return Failure.AMBIGUOUS, "the verdict stands inside reasoning that never ends"
    return _CUT


def _rivals(doubtful: Sequence[Claim]) -> list[Claim]:
    """Without a nonce a whole verdict amid broken JSON may be a quotation: it can spoil, not win."""
    return [claim.spoilt() for claim in doubtful if claim.names_all]


def _after_reasoning(text: str) -> tuple[int, bool]:
    """Where the leading reasoning blocks end, and whether the last of them is never closed.

    Blocks further on are not skipped: a quoted pair of tags must not hide the judge's own verdict.
    """
    at = 0
    while opening := _THINK.match(text, at):
        closing = re.compile(rf"</{opening.group(1)}\s*>", re.IGNORECASE).search(text, opening.end())
        if closing is None:
            return opening.end(), True
        at = closing.end()
    return at, False


def _walk(text: str, start: int, ids: Ids, nonce: str | None) -> _Text:
    found = _Text()
    broken = False
    at = start
    while found.misread <= MAX_MISREAD and (match := _OPENER.search(text, at)):
        at = match.start()
        try:
            value, end = read(text, at)
        except Broken as error:
            if _BEGINS_JSON.match(text, at):
                broken = True
                found.cut = found.cut or error.ended
            found.misread += 1
            at += 1
            continue
        at = end
        claims = find_claims(value, ids, nonce, keyed_only=broken)
        (found.doubtful if broken else found.claims).extend(claims)
        found.objects += isinstance(value, Fields) or _holds_object(value)
    return found


def _holds_object(value: Value) -> bool:
    return isinstance(value, list) and any(isinstance(item, Fields) for item in value)


def _decide(claims: Sequence[Claim]) -> Verdict | None:
    """The verdict that all complete claims agree on, else the last claim's defect; None for no claim."""
    complete = [claim for claim in claims if claim.names_all]
    if any(one.scores != other.scores for one, other in pairwise(complete)):
        return _fail(Failure.AMBIGUOUS, "the reply holds verdicts that differ")
    if complete and complete[-1].failure is None:
        return _accept(complete)
    if any(claim.failure is Failure.AMBIGUOUS for claim in complete):
        return _fail(Failure.AMBIGUOUS, "the verdict stands inside text that cannot be read")
    if not claims:
        return None
    last = (complete or claims)[-1]
    return _fail(last.failure or Failure.WRONG_SCHEMA, last.detail)


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
    if _REFUSAL.search(text[:400]):
        return Failure.REFUSAL, "the judge declined to judge"
    if found.objects:
        return Failure.WRONG_SCHEMA, _no_key(nonce)
    return Failure.NO_JSON, "the reply holds no JSON"


def _no_key(nonce: str | None) -> str:
    return f"the reply has no key {'scores' if nonce is None else f'scores_{nonce}'!r} with a list of scores"


def _fail(failure: Failure, detail: str) -> Verdict:
    return Verdict(failure=failure, detail=detail)

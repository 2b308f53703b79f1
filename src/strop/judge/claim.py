"""Claims: the places in a reply that say they score the group, each with what is wrong with it."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from strop.errors import InputError
from strop.judge.lenient import Broken, Fields, Items, Member, Value, number, plain_key, read_whole
from strop.judge.verdict import Failure

_KEY = re.compile(r"scores(_[0-9a-f]{4,16})?")
_PLACE = re.compile(r"(?:(?:attempt|trajectory)[\s_-]*)?#?0*(\d+)(?:\.0+)?", re.ASCII | re.IGNORECASE)
_LONGEST_PLACE = 64
_EXACT = 2.0**53
_ID_KEYS = ("trajectory_id", "id", "attempt", "attempt_id")
_REASON_KEYS = ("explanation", "reason")


@dataclass(frozen=True, slots=True)
class Ids:
    """The ids a reply must name, each exactly once."""

    names: tuple[str, ...]
    places: Mapping[str, str]

    @classmethod
    def of(cls, ids: Sequence[str]) -> "Ids":
        """Raises InputError for no id, or one that occurs twice."""
        if not ids or len(set(ids)) < len(ids):
            raise InputError(f"a reply is read against distinct ids, at least one; got {list(ids)}")
        forms = Counter(_plain(name) for name in ids)
        return cls(tuple(ids), {_plain(name): name for name in ids if forms[_plain(name)] == 1})

    def match(self, given: Value) -> str | None:
        """The id that `given` is by value (" 1", "01", "#1", 1.0 and 1 are all "1"), None for any other."""
        if isinstance(given, float) and abs(given) < _EXACT and given == int(given):
            given = int(given)
        if isinstance(given, int) and not isinstance(given, bool):
            given = str(given)
        if not isinstance(given, str):
            return None
        return given if given in self.names else self.places.get(_plain(given))


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One reading. `names_all`: it names every id; `failure` None: exactly once, with a good score each.

    `scores` of a claim with a failure tell it apart from others, and are never given out.
    `bare` says that it stood under no key of its own; `passing` that, lacking ids, it may be a draft or an
    example that the verdict follows. `start` and `end` are its place in the text.
    """

    names_all: bool = False
    scores: Mapping[str, float] = field(default_factory=dict)
    explanations: Mapping[str, str] = field(default_factory=dict)
    failure: Failure | None = None
    detail: str = ""
    bare: bool = False
    passing: bool = False
    start: int = 0
    end: int = 0

    def spoilt(self, detail: str) -> "Claim":
        """The same claim where it stands in doubtful surroundings."""
        return replace(self, failure=Failure.AMBIGUOUS, detail=detail, scores={})


@dataclass(frozen=True, slots=True)
class _Item:
    given: Value
    score: Value
    explanation: str = ""
    others: tuple[Value, ...] = ()


def find_claims(member: Member, ids: Ids, nonce: str | None, *, keyed_only: bool = False) -> list[Claim]:
    """Every claim in a value, in the order of the text. With a nonce or `keyed_only`, a key is required.

    With a nonce a string that is JSON is looked into as well; without one it may be a quotation.
    """
    value = member.value
    if _is_key(member.key, nonce):
        return [_claim(member, ids, bare=False)]
    if isinstance(value, str) and nonce is not None:
        inner = Member("", _opened(value), member.start, member.end)
        nested = [] if inner.value is value else find_claims(inner, ids, nonce)
        return [replace(claim, start=member.start, end=member.end) for claim in nested]
    if not isinstance(value, Fields | Items):
        return []
    if nonce is None and not keyed_only and _is_bare(value, ids):
        return [_claim(member, ids, bare=True)]
    return [
        claim for inner in value.members for claim in find_claims(inner, ids, nonce, keyed_only=keyed_only)
    ]


def scores_again(ids: Ids) -> re.Pattern[str]:
    """What text looks like that states scores: a key "score" or "scores", or an id with a value.

    No part of it can begin at many places of a run, so a search takes linear time.
    """
    names = "|".join(re.escape(name) for name in ids.names)
    return re.compile(
        r"(?:[,{\[]\s*|[\"'])scores?(?:\\*_[0-9a-f]{4,16})?\s*\\*[\"']?\s*:"
        rf"|[\"'](?:{names})\s*\\*[\"']\s*:\s*[\d.+\-\"'{{\\]",
        re.IGNORECASE,
    )


def own_key(nonce: str) -> re.Pattern[str]:
    """What the key with the nonce looks like where JSON begins a value for it, escaped or not."""
    key = rf"scores\\*_{re.escape(nonce)}"
    return re.compile(rf"{key}\s*\\*[\"']\s*[:{{\[]|[,{{]\s*{key}\s*:", re.IGNORECASE)


def _is_key(key: str, nonce: str | None) -> bool:
    plain = plain_key(key)
    return plain == f"scores_{nonce}".lower() if nonce is not None else _KEY.fullmatch(plain) is not None


def _is_bare(value: Fields | Items, ids: Ids) -> bool:
    """Whether a value with no key of its own has the form of a verdict: a map by id, or a list of items."""
    if isinstance(value, Fields):
        return any(ids.match(member.key) for member in value.members)
    return any(isinstance(item.value, Fields) and item.value.all(*_ID_KEYS) for item in value.members)


def _opened(value: Value) -> Value:
    """What a string says that is JSON of an object or array; any other value as it is."""
    if not isinstance(value, str) or value.lstrip()[:1] not in ("{", "["):
        return value
    try:
        return read_whole(value)
    except Broken:
        return value


def _claim(member: Member, ids: Ids, *, bare: bool) -> Claim:
    value = _opened(member.value)
    claim = _reading(_items(value, ids), ids)
    if claim.failure is Failure.WRONG_SCHEMA:
        claim = replace(claim, passing=_is_example(value))
    return replace(claim, bare=bare, start=member.start, end=member.end)


def _reading(items: Sequence[_Item] | None, ids: Ids) -> Claim:
    if items is None:
        return Claim(failure=Failure.WRONG_SCHEMA, detail="an entry lacks its id or its score")
    counts = Counter(ids.match(item.given) for item in items)
    scores = {name: _score(item.score) for item in items if (name := ids.match(item.given)) is not None}
    failure, detail = _id_defect(items, counts, ids) or _score_defect(scores) or (None, "")
    claim = Claim(
        names_all=all(counts[name] for name in ids.names),
        scores={} if failure else scores,
        explanations={ids.match(item.given) or "": item.explanation for item in items if item.explanation},
        failure=failure,
        detail=detail,
        passing=failure is Failure.MISSING_IDS or not any(_is_place(item.given, ids) for item in items),
    )
    nested = any(_holds_entries(other, ids) for item in items for other in item.others)
    return claim.spoilt("an entry holds further entries") if nested else claim


def _items(value: Value, ids: Ids) -> list[_Item] | None:
    """Entries of a list of objects or of a map; None where one of them has no clear id or score."""
    if not isinstance(value, Fields | Items):
        return None
    keyed = isinstance(value, Fields)
    entries = [_entry(inner.value, inner.key if keyed else None, ids) for inner in value.members]
    items = [entry for entry in entries if entry is not None]
    return items if len(items) == len(entries) else None


def _is_example(value: Value) -> bool:
    """Whether a value without clear entries states nothing: null, or a form with "..." for the rest."""
    if not isinstance(value, Fields | Items):
        return value is None
    return any(isinstance(m.value, str) and m.value.strip() == "..." for m in value.members)


def _entry(value: Value, key: str | None, ids: Ids) -> _Item | None:
    if not isinstance(value, Fields):
        return None if key is None or isinstance(value, Items) else _Item(key, value)
    named: list[Value] = [*([key] if key is not None else []), *value.all(*_ID_KEYS)]
    scores = value.all("score")
    if not named or not scores or len({_same(name, ids) for name in named}) > 1:
        return None
    reasons = [reason for reason in value.all(*_REASON_KEYS) if isinstance(reason, str)]
    others = tuple(member.value for member in value.members)
    return _Item(named[0], scores[0] if len(scores) == 1 else None, " ".join(reasons), others)


def _holds_entries(value: Value, ids: Ids) -> bool:
    """Whether somewhere in `value` an id stands with a score, as it does where a quotation broke out."""
    if isinstance(value, Items):
        return any(_holds_entries(inner.value, ids) for inner in value.members)
    if not isinstance(value, Fields):
        return False
    named = any(ids.match(given) for given in value.all(*_ID_KEYS))
    return (named and bool(value.all("score"))) or any(
        (_is_stated(inner.value) and ids.match(inner.key) is not None) or _holds_entries(inner.value, ids)
        for inner in value.members
    )


def _is_stated(value: Value) -> bool:
    if isinstance(value, Fields):
        return bool(value.all("score"))
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_place(given: Value, ids: Ids) -> bool:
    """Whether `given` is an id or as good as one, a number; the "..." of an example is not."""
    return ids.match(given) is not None or not isinstance(given, str) or bool(re.search(r"\d", given))


def _same(given: Value, ids: Ids) -> str:
    return ids.match(given) or f"? {given!r}"


def _id_defect(
    items: Iterable[_Item], counts: Mapping[str | None, int], ids: Ids
) -> tuple[Failure, str] | None:
    twice = [name for name in ids.names if counts[name] > 1]
    if twice:
        return Failure.DUPLICATE_IDS, f"these ids occur more than once: {', '.join(twice)}"
    unknown = [_shown(item.given) for item in items if ids.match(item.given) is None]
    if unknown:
        return Failure.UNEXPECTED_IDS, f"these ids were never shown: {', '.join(unknown[:8])}"
    missing = [name for name in ids.names if not counts[name]]
    return (Failure.MISSING_IDS, f"these ids are missing: {', '.join(missing)}") if missing else None


def _shown(given: Value) -> str:
    return f"a {type(given).__name__}" if isinstance(given, Fields | Items) else str(given)[:40]


def _score_defect(scores: Mapping[str, float]) -> tuple[Failure, str] | None:
    bad = [name for name, score in scores.items() if not math.isfinite(score)]
    if bad:
        return Failure.BAD_SCORE, f"the score is not a number for: {', '.join(bad)}"
    outside = [name for name, score in scores.items() if not 0 <= score <= 1]
    return (
        (Failure.OUT_OF_RANGE, f"the score is not in 0 to 1 for: {', '.join(outside)}") if outside else None
    )


def _score(value: Value) -> float:
    """The number a score states; NaN, which is then refused, for what states none. -0 is 0."""
    stated = number(value) if isinstance(value, str) else value
    return (
        float(stated) + 0.0 if isinstance(stated, int | float) and not isinstance(stated, bool) else math.nan
    )


def _plain(name: str) -> str:
    name = name.strip()
    place = _PLACE.fullmatch(name) if len(name) <= _LONGEST_PLACE else None
    return place.group(1) if place else name

"""Claims: the places in a reply that say they score the group, each with what is wrong with it."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from strop.errors import InputError
from strop.judge.lenient import Fields, Value, number
from strop.judge.verdict import Failure

_KEY = re.compile(r"scores(_[0-9a-f]{4,16})?")
_PLACE = re.compile(r"(?:(?:attempt|trajectory)[\s_-]*)?#?0*(\d+)", re.ASCII | re.IGNORECASE)
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
        """The id that `given` is by value (" 1", "01", "#1" and 1 are all "1"), None for any other."""
        if isinstance(given, float) and math.isfinite(given) and given == int(given):
            given = str(int(given))
        if not isinstance(given, str):
            return None
        return given if given in self.names else self.places.get(_plain(given))


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One reading. `names_all`: it names every id; `failure` None: exactly once, with a good score each.

    `scores` of a claim with a failure tell it apart from others, and are never given out.
    `bare` says that it stood under no key of its own.
    """

    names_all: bool = False
    scores: Mapping[str, float] = field(default_factory=dict)
    explanations: Mapping[str, str] = field(default_factory=dict)
    failure: Failure | None = None
    detail: str = ""
    bare: bool = False

    def spoilt(self) -> "Claim":
        """The same claim where it stands in doubtful surroundings."""
        return replace(self, failure=Failure.AMBIGUOUS, scores={})


@dataclass(frozen=True, slots=True)
class _Item:
    given: Value
    score: Value
    explanation: str = ""


def find_claims(value: Value, ids: Ids, nonce: str | None, *, keyed_only: bool = False) -> list[Claim]:
    """Every claim in `value`, in the order of the text. With a nonce or `keyed_only`, a key is required."""
    bare = nonce is None and not keyed_only
    if isinstance(value, Fields):
        if bare and any(ids.match(key) for key, _ in value.pairs):
            return [_claim(value, ids, bare=True)]
        return [
            claim
            for key, inner in value.pairs
            for claim in (
                [_claim(inner, ids, bare=False)]
                if _is_key(key, nonce)
                else find_claims(inner, ids, nonce, keyed_only=keyed_only)
            )
        ]
    if not isinstance(value, list):
        return []
    if bare and any(isinstance(item, Fields) and item.all(*_ID_KEYS) for item in value):
        return [_claim(value, ids, bare=True)]
    return [claim for item in value for claim in find_claims(item, ids, nonce, keyed_only=keyed_only)]


def _is_key(key: str, nonce: str | None) -> bool:
    plain = key.strip().lower()
    return plain == f"scores_{nonce}" if nonce is not None else _KEY.fullmatch(plain) is not None


def _claim(value: Value, ids: Ids, *, bare: bool) -> Claim:
    items = _items(value, ids)
    if items is None:
        return Claim(failure=Failure.WRONG_SCHEMA, detail="an entry lacks its id or its score", bare=bare)
    counts = Counter(ids.match(item.given) for item in items)
    names_all = all(counts[name] for name in ids.names)
    scores = {name: _score(item.score) for item in items if (name := ids.match(item.given)) is not None}
    failure, detail = _id_defect(items, counts, ids) or _score_defect(scores) or (None, "")
    return Claim(
        names_all=names_all,
        scores={} if failure else scores,
        explanations={ids.match(item.given) or "": item.explanation for item in items if item.explanation},
        failure=failure,
        detail=detail,
        bare=bare,
    )


def _items(value: Value, ids: Ids) -> list[_Item] | None:
    """Entries of a list of objects or of a map; None where one of them has no clear id or score."""
    if isinstance(value, list):
        entries = [_entry(item, None, ids) for item in value]
    elif isinstance(value, Fields):
        entries = [_entry(inner, key, ids) for key, inner in value.pairs]
    else:
        return None
    items = [entry for entry in entries if entry is not None]
    return items if len(items) == len(entries) else None


def _entry(value: Value, key: str | None, ids: Ids) -> _Item | None:
    if not isinstance(value, Fields):
        return None if key is None or isinstance(value, list) else _Item(key, value)
    named: list[Value] = [*([key] if key is not None else []), *value.all(*_ID_KEYS)]
    scores = value.all("score")
    if not named or not scores or len({_same(name, ids) for name in named}) > 1:
        return None
    reasons = [reason for reason in value.all(*_REASON_KEYS) if isinstance(reason, str)]
    return _Item(named[0], scores[0] if len(scores) == 1 else None, " ".join(reasons))


def _same(given: Value, ids: Ids) -> str:
    return ids.match(given) or f"? {given!r}"


def _id_defect(
    items: Iterable[_Item], counts: Mapping[str | None, int], ids: Ids
) -> tuple[Failure, str] | None:
    twice = [name for name in ids.names if counts[name] > 1]
    if twice:
        return Failure.DUPLICATE_IDS, f"these ids occur more than once: {', '.join(twice)}"
    unknown = [str(item.given)[:40] for item in items if ids.match(item.given) is None]
    if unknown:
        return Failure.UNEXPECTED_IDS, f"these ids were never shown: {', '.join(unknown[:8])}"
    missing = [name for name in ids.names if not counts[name]]
    return (Failure.MISSING_IDS, f"these ids are missing: {', '.join(missing)}") if missing else None


def _score_defect(scores: Mapping[str, float]) -> tuple[Failure, str] | None:
    bad = [name for name, score in scores.items() if not math.isfinite(score)]
    if bad:
        return Failure.BAD_SCORE, f"the score is not a number for: {', '.join(bad)}"
    outside = [name for name, score in scores.items() if not 0 <= score <= 1]
    return (
        (Failure.OUT_OF_RANGE, f"the score is not in 0 to 1 for: {', '.join(outside)}") if outside else None
    )


def _score(value: Value) -> float:
    """The number a score states; NaN, which is then refused, for what states none."""
    if isinstance(value, bool):
        return math.nan
    if isinstance(value, str):
        stated = number(value)
        return math.nan if stated is None else stated + 0.0
    return value + 0.0 if isinstance(value, float) else math.nan


def _plain(name: str) -> str:
    place = _PLACE.fullmatch(name.strip())
    return place.group(1) if place else name.strip()

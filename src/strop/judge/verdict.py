"""What a judge says of a group: a score for every trajectory, or the class of its failure. Never both."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any

from strop.errors import InputError
from strop.trajectory.model import Group, Trajectory

SCHEMA = 2

UNASKED = frozenset({"identical", "single", "cached"})
"""Flags of verdicts that may have taken no call."""

Alternatives = tuple[tuple[tuple[str, float], ...], ...]
"""For each of the first tokens of a reply: likely tokens with their natural-log probabilities."""


class Failure(StrEnum):
    """Why a judgement gave no scores. A failure is never a score of 0."""

    MISSING_IDS = "missing_ids"
    DUPLICATE_IDS = "duplicate_ids"
    UNEXPECTED_IDS = "unexpected_ids"
    BAD_SCORE = "bad_score"
    OUT_OF_RANGE = "out_of_range"
    TRUNCATED = "truncated"
    REFUSAL = "refusal"
    NO_JSON = "no_json"
    WRONG_SCHEMA = "wrong_schema"
    AMBIGUOUS = "ambiguous"
    EMPTY = "empty"
    TIMEOUT = "timeout"
    TRANSPORT = "transport"
    OVER_BUDGET = "over_budget"
    TOO_LONG = "too_long"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What judging took: tokens in and out, money (None where a price is unknown), seconds, calls.

    `tokens_cached` are those of `tokens_in` that the server read from its prompt cache. `unmetered`
    counts the calls whose tokens the server did not report; tokens and money leave them out, so that
    both are lower bounds where it is above 0.
    """

    tokens_in: int = 0
    tokens_cached: int = 0
    tokens_out: int = 0
    money: float | None = 0.0
    seconds: float = 0.0
    calls: int = 0
    unmetered: int = 0

    def __add__(self, other: "Cost") -> "Cost":
        known = self.money is not None and other.money is not None
        return Cost(
            tokens_in=self.tokens_in + other.tokens_in,
            tokens_cached=self.tokens_cached + other.tokens_cached,
            tokens_out=self.tokens_out + other.tokens_out,
            money=(self.money or 0.0) + (other.money or 0.0) if known else None,
            seconds=self.seconds + other.seconds,
            calls=self.calls + other.calls,
            unmetered=self.unmetered + other.unmetered,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One call's raw reply with all that reading it again needs.

    `shown` maps the id in the prompt to the trajectory ids it stands for (identical ones share it), in
    the order shown. `presentation` counts the times a group or a part of it was shown; a re-ask has
    the number of what it asks again. `failure` is the class of this one attempt, None where it was
    good. `alternatives` are kept in mode "logprob", whose replies are a digit.
    """

    text: str
    finish_reason: str | None
    nonce: str
    shown: Mapping[str, tuple[str, ...]]
    presentation: int = 0
    failure: Failure | None = None
    alternatives: Alternatives = ()
    cost: Cost = Cost()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Scores in [0, 1] by trajectory id, or a failure class with one line of detail.

    `explanations` are the judge's words by trajectory id, where it gave any; `flags` say how the
    replies were read or why there was no call ("tolerant", "fenced", "identical", ...). `reliability` is
    the share of pairs that repeated judgements order alike (half for a tie), in [0, 1]; `noise` the
    standard error of a score as those judgements show it. Both are None where there was one judgement.
    `method` says how scores were made ("listwise mean", ...); `cut` is the share of an attempt's text
    that the judge did not see, by trajectory id, where it is not 0. Raises InputError for both or
    neither of scores and failure, and for a score that is not a finite number in [0, 1].
    """

    group_id: str = ""
    scores: Mapping[str, float] | None = None
    failure: Failure | None = None
    detail: str = ""
    explanations: Mapping[str, str] = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    reliability: float | None = None
    noise: float | None = None
    method: str = ""
    cut: Mapping[str, float] = field(default_factory=dict)
    cost: Cost = Cost()
    replies: tuple[Reply, ...] = ()

    def __post_init__(self) -> None:
        if (self.scores is None) == (self.failure is None):
            raise InputError(
                f"verdict on group {self.group_id!r}: either scores or a failure, not both or none"
            )
        for trajectory_id, score in (self.scores or {}).items():
            if not (math.isfinite(score) and 0 <= score <= 1):
                raise InputError(f"verdict on {trajectory_id!r}: score {score} is not in [0, 1]")

    @property
    def asked(self) -> bool:
        """Whether it took a call: not where nothing was compared, nor where all replies were kept."""
        return self.cost.calls > 0 or not UNASKED.intersection(self.flags)

    def to_json(self) -> dict[str, Any]:
        """A plain object that `json.dumps` takes and `from_json` reads back as an equal verdict."""
        return {"schema": SCHEMA, **asdict(self)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Verdict":
        """Raises InputError for another schema version or a missing or wrong field."""
        if data.get("schema") != SCHEMA:
            raise InputError(f"verdict of schema {data.get('schema')!r}; this version reads {SCHEMA}")
        values = {key: value for key, value in data.items() if key != "schema"}
        try:
            values["failure"] = _failure(values["failure"])
            values["flags"] = tuple(values["flags"])
            values["cost"] = Cost(**values["cost"])
            values["replies"] = tuple(_reply(reply) for reply in values["replies"])
            return cls(**values)
        except (KeyError, TypeError, AttributeError) as error:
            raise InputError(f"verdict cannot be read: {error}") from error


def alternatives_of(data: Any) -> Alternatives:
    """Alternatives read back from JSON. Raises TypeError or ValueError for what are none."""
    return tuple(tuple((str(token), float(value)) for token, value in place) for place in data)


def apply(group: Group, verdict: Verdict) -> Group:
    """The group with the verdict's score, or its failure class as `unscored`, on every trajectory.

    The group gets the verdict's noise, and whether it took a call. A trajectory that was unscored before
    stays so; one that the verdict does not name becomes unscored as "missing_ids". Every other field, and
    the group's own, is kept. Raises InputError for another group's verdict.
    """
    if verdict.group_id != group.group_id:
        raise InputError(f"verdict on group {verdict.group_id!r} applied to group {group.group_id!r}")
    judged = tuple(_judged(t, verdict) for t in group.trajectories)
    return replace(group, trajectories=judged, noise=verdict.noise, asked=verdict.asked)


def _judged(trajectory: Trajectory, verdict: Verdict) -> Trajectory:
    if trajectory.unscored is not None:
        return trajectory
    score = None if verdict.scores is None else verdict.scores.get(trajectory.trajectory_id)
    if score is not None:
        return replace(trajectory, score=score)
    return replace(trajectory, score=None, unscored=str(verdict.failure or Failure.MISSING_IDS))


def _failure(name: str | None) -> Failure | None:
    if name is None:
        return None
    try:
        return Failure(name)
    except ValueError as error:
        raise InputError(f"verdict names an unknown failure class {name!r}") from error


def _reply(data: Mapping[str, Any]) -> Reply:
    shown = {place: tuple(ids) for place, ids in data["shown"].items()}
    return Reply(
        **{
            **data,
            "shown": shown,
            "failure": _failure(data["failure"]),
            "alternatives": alternatives_of(data["alternatives"]),
            "cost": Cost(**data["cost"]),
        }
    )

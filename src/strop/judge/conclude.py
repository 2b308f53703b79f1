"""From what was read in a group's replies to its verdict; the same when replies are read again later."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from strop.judge.combine import Ballot, combine
from strop.judge.digit import parse_digit
from strop.judge.reply import parse_reply
from strop.judge.settings import Combination, Mode
from strop.judge.verdict import Cost, Failure, Reply, Verdict

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How one presentation ended: the last reading, on shown ids, and all replies that led to it."""

    read: Verdict
    replies: Sequence[Reply]
    shown: Mapping[str, tuple[str, ...]]

    @property
    def ballot(self) -> Ballot | None:
        """The scores by the first trajectory id each shown id stands for, in the order shown."""
        scores = self.read.scores
        return None if scores is None else Ballot(scores={i[0]: scores[p] for p, i in self.shown.items()})


def read_again(reply: Reply, *, digit: bool) -> Verdict:
    """What the reply says, on shown ids. Pure."""
    if reply.failure in (Failure.TIMEOUT, Failure.TRANSPORT, Failure.TOO_LONG, Failure.OVER_BUDGET):
        return Verdict(failure=reply.failure, detail="there is no reply")
    if digit:
        return parse_digit(reply.text, reply.alternatives, reply.finish_reason)
    read = parse_reply(reply.text, list(reply.shown), reply.finish_reason, reply.nonce)
    if read.failure is Failure.EMPTY and reply.failure is Failure.REFUSAL:
        return Verdict(failure=Failure.REFUSAL, detail="the judge declined to judge")
    return read


def conclude(
    outcomes: Sequence[Outcome], mode: Mode, combination: Combination, base: Verdict | None = None
) -> Verdict:
    """The verdict on trajectory ids that all presentations together give.

    Presentations that failed are left out, and flagged "partial"; where all did, so has the group, by
    the last one's class. An attempt that no good reply scored is absent from the scores. `base` lends
    group id, flags and cuts. Degenerate: no presentation at all is an InputError of Verdict.
    """
    base = base or Verdict(failure=Failure.EMPTY)
    ballots = [ballot for outcome in outcomes if (ballot := outcome.ballot) is not None]
    replies = tuple(reply for outcome in outcomes for reply in outcome.replies)
    common = replace(
        base,
        method=f"{mode} {combination}",
        cost=sum((reply.cost for reply in replies), Cost()),
        replies=replies,
    )
    if not ballots:
        last = outcomes[-1].read
        return replace(common, scores=None, failure=last.failure, detail=last.detail, flags=_flags(outcomes))
    combined = combine(ballots, combination, mode)
    names = {ids[0]: ids for outcome in outcomes for ids in outcome.shown.values()}
    return replace(
        common,
        scores=_spread(combined.scores, names),
        failure=None,
        detail=_why_partial(outcomes),
        explanations=_spread(_explanations(outcomes), names),
        flags=_flags(outcomes),
        reliability=combined.reliability,
        noise=combined.noise,
    )


def _flags(outcomes: Sequence[Outcome]) -> tuple[str, ...]:
    """Every flag once, in the order of occurrence."""
    failed = [outcome.read.failure is not None for outcome in outcomes]
    flags = [flag for outcome in outcomes for flag in outcome.read.flags]
    if any(len(outcome.replies) > 1 for outcome in outcomes):
        flags.append("reasked")
    if any(failed) and not all(failed):
        flags.append("partial")
    return tuple(dict.fromkeys(flags))


def _why_partial(outcomes: Sequence[Outcome]) -> str:
    lost = [outcome.read for outcome in outcomes if outcome.read.failure]
    return f"{len(lost)} of {len(outcomes)} presentations failed: {lost[-1].failure}" if lost else ""


def _explanations(outcomes: Sequence[Outcome]) -> dict[str, str]:
    """The words of the first presentation that has any for an attempt."""
    found: dict[str, str] = {}
    for outcome in outcomes:
        for place, ids in outcome.shown.items():
            if outcome.read.scores is not None and place in outcome.read.explanations:
                found.setdefault(ids[0], outcome.read.explanations[place])
    return found


def _spread(by_first: Mapping[str, T], names: Mapping[str, tuple[str, ...]]) -> dict[str, T]:
    return {name: value for first, value in by_first.items() for name in names[first]}

"""Old verdicts read again: the raw replies they hold, through today's parser and combination. No call."""

from dataclasses import replace
from typing import get_args

from strop.errors import InputError
from strop.judge.conclude import Outcome, conclude, read_again
from strop.judge.settings import Combination, Mode
from strop.judge.verdict import Reply, Verdict


def reread(verdict: Verdict) -> Verdict:
    """`verdict` as it would be read today. One that needed no reply comes back as it is.

    Of several replies to one presentation the first good one counts. Raises InputError for a method
    this version does not know.
    """
    if not verdict.replies:
        return verdict
    mode, combination = _method(verdict)
    shown: dict[int, list[Reply]] = {}
    for reply in verdict.replies:
        shown.setdefault(reply.presentation, []).append(reply)
    outcomes = [_outcome(replies, mode) for replies in shown.values()]
    base = replace(verdict, explanations={}, flags=(), reliability=None, noise=None)
    return replace(conclude(outcomes, mode, combination, base), cost=verdict.cost)


def _outcome(replies: list[Reply], mode: Mode) -> Outcome:
    reads = [read_again(reply, digit=mode == "logprob") for reply in replies]
    good = next((place for place, read in enumerate(reads) if read.failure is None), len(reads) - 1)
    again = [replace(reply, failure=read.failure) for reply, read in zip(replies, reads, strict=True)]
    return Outcome(read=reads[good], replies=again, shown=replies[0].shown)


def _method(verdict: Verdict) -> tuple[Mode, Combination]:
    mode, _, combination = verdict.method.partition(" ")
    for known in get_args(Mode):
        for merged in get_args(Combination):
            if (mode, combination) == (known, merged):
                return known, merged
    raise InputError(f"verdict on group {verdict.group_id!r}: unknown method {verdict.method!r}")

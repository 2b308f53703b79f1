"""What a run took: tokens, seconds and money, added up from what was recorded at the time."""

from collections.abc import Mapping, Sequence
from typing import Any

from strop.judge.verdict import Cost, Verdict


def judge_cost(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """`tokens_in, tokens_out, money, seconds, calls` over all verdicts, failed attempts included.

    `money` is None where the price of any call is unknown: a part of a bill is not a bill.
    """
    total = sum((v.cost for v in verdicts), Cost())
    return {
        "tokens_in": total.tokens_in,
        "tokens_out": total.tokens_out,
        "money": total.money,
        "seconds": total.seconds,
        "calls": total.calls,
    }


def seconds_by_stage(steps: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Seconds of each stage over the step lines' `seconds` objects, in order of first appearance."""
    total: dict[str, float] = {}
    for step in steps:
        for stage, seconds in (step.get("seconds") or {}).items():
            total[stage] = total.get(stage, 0.0) + float(seconds)
    return total


def counts(steps: Sequence[Mapping[str, Any]], of: str) -> dict[str, int]:
    """Counts by fate over the step lines' `of` objects ("groups" or "trajectories"); `all` is their sum."""
    total: dict[str, int] = {}
    for step in steps:
        for fate, number in (step.get(of) or {}).items():
            total[fate] = total.get(fate, 0) + int(number)
    return total

"""The desk's own check: how the case ended, the first wrong step, and a hand-written reward.

Training sees none of this. The reward exists only to compare a judge-trained policy with one
trained on a reward that somebody had to write.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from strop.demo.orders import OrderScenario
from strop.inference.template import text_of
from strop.rollout.tool_agent import readable_arguments
from strop.trajectory.model import Message

DECISIONS = ("refund", "decline")

JournalEntry = tuple[str, str, int]
"""(tool, order number, 1 if the call did its work) for one executed call, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """`value` 1.0 if the case ended right, else 0.0; `first_wrong_step` counts assistant messages from 0;
    `reward` is the hand-written one, in [0, 1]."""

    value: float
    first_wrong_step: int | None
    reward: float


def outcome(
    scenario: OrderScenario,
    journal: Sequence[JournalEntry],
    messages: Sequence[Message],
    tools: Sequence[Mapping[str, Any]],
) -> Outcome:
    """Right means: this order was looked up with success, then it alone was decided as the policy asks,
    then the customer was told. The first step after which that can no longer happen is the wrong one.

    A step that both looks up and decides has decided blindly. A second decision that the desk refuses
    changes nothing.
    """
    steps = [message for message in messages if message["role"] == "assistant"]
    looked_up = decided = False
    wrong: int | None = None
    for index, entries in enumerate(_by_step(steps, tools, journal)):
        for tool, number, ok in entries:
            if tool in DECISIONS and ok and wrong is None:
                fits = number == scenario.order and (tool == "refund") == scenario.refund_due
                wrong = None if looked_up and fits else index
                decided = True
        looked_up = looked_up or ("lookup", scenario.order, 1) in entries
    if wrong is None and not (decided and _told(steps)):
        wrong = max(len(steps) - 1, 0)
    value = float(wrong is None)
    return Outcome(value=value, first_wrong_step=wrong, reward=_reward(value, looked_up, decided, len(steps)))


def _by_step(
    steps: Sequence[Message], tools: Sequence[Mapping[str, Any]], journal: Sequence[JournalEntry]
) -> list[list[JournalEntry]]:
    """The journal's entries by step. Broken calls and unknown tools never reached the desk."""
    owners = [
        index
        for index, step in enumerate(steps)
        for call in step.get("tool_calls") or ()
        if _reached(call, tools)
    ]
    entries: list[list[JournalEntry]] = [[] for _ in steps]
    for owner, entry in zip(owners, journal, strict=True):
        entries[owner].append(entry)
    return entries


def _reached(call: Mapping[str, Any], tools: Sequence[Mapping[str, Any]]) -> bool:
    return not isinstance(readable_arguments(call, tools), str)


def _told(steps: Sequence[Message]) -> bool:
    return bool(steps and not steps[-1].get("tool_calls") and text_of(steps[-1].get("content")).strip())


def _reward(value: float, looked_up: bool, decided: bool, steps: int) -> float:
    """The outcome first, then a little for looking and deciding, less a little for dawdling."""
    return max(0.0, 0.8 * value + 0.1 * looked_up + 0.1 * decided - 0.02 * max(steps - 3, 0))

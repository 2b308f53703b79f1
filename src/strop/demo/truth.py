"""The desk's own check: how the case ended, the first wrong step, and a hand-written reward.

Training sees none of this. The reward exists only to compare a judge-trained policy with one
trained on a reward that somebody had to write.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from strop.demo.orders import OrderScenario
from strop.rollout.tool_agent import readable_arguments
from strop.trajectory.model import Message

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
    """Right means: this order was looked up with success, then decided once as the policy asks,
    then the customer was told. The first step after which that can no longer happen is the wrong one.
    """
    steps = [message for message in messages if message["role"] == "assistant"]
    wrong, looked_up, decided = None, False, False
    for owner, (tool, number, ok) in zip(_executed(steps, tools), journal, strict=True):
        looked_up = looked_up or bool(tool == "lookup" and number == scenario.order and ok)
        if tool in ("refund", "decline") and not decided:
            decided = True
            right = looked_up and number == scenario.order and (tool == "refund") == scenario.refund_due
            wrong = None if right else owner
    told = bool(steps) and not steps[-1].get("tool_calls")
    if wrong is None and not (decided and told):
        wrong = max(len(steps) - 1, 0)
    value = float(wrong is None)
    return Outcome(value=value, first_wrong_step=wrong, reward=_reward(value, looked_up, decided, len(steps)))


def _executed(steps: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> list[int]:
    """The step of each call that reached the desk: broken calls and unknown tools never do."""
    return [
        index
        for index, step in enumerate(steps)
        for call in step.get("tool_calls") or ()
        if not isinstance(readable_arguments(call, tools), str)
    ]


def _reward(value: float, looked_up: bool, decided: bool, steps: int) -> float:
    """The outcome first, then a little for looking and deciding, less a little for dawdling."""
    return max(0.0, 0.8 * value + 0.1 * looked_up + 0.1 * decided - 0.02 * max(steps - 3, 0))

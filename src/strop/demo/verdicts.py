"""What a good judge would say of attempts at the order desk: the training text of the shipped judge.

Read off the attempts' own messages, as any careful reader could; the desk's truth is not asked.
"""

import json
from collections.abc import Mapping, Sequence

from strop.demo.orders import FINAL, REFUNDABLE
from strop.demo.truth import DECISIONS
from strop.judge.prompt import Prompt, reply_key
from strop.trajectory.model import Message, Trajectory

RIGHT, WRONG = 0.9, 0.1


def reply(prompt: Prompt, trajectories: Sequence[Trajectory]) -> str:
    """The reply the prompt asks for, every attempt explained and scored, in the order shown."""
    by_id = {trajectory.trajectory_id: trajectory for trajectory in trajectories}
    entries = []
    for shown, trajectory_id in prompt.shown.items():
        explanation, score = verdict(by_id[trajectory_id].messages)
        entries.append({"trajectory_id": shown, "explanation": explanation, "score": score})
    return json.dumps({reply_key(prompt.nonce): entries})


def verdict(messages: Sequence[Message]) -> tuple[str, float]:
    """(explanation, score): the status that was read, the first decision, and whether it fits.

    What came after the first decision is not looked at, nor whether the customer was told.
    """
    status, asked = None, _asked_for(messages)
    results = {m["tool_call_id"]: json.loads(m["content"]) for m in messages if m["role"] == "tool"}
    for message in messages:
        calls = [(call, results.get(call["id"], {})) for call in message.get("tool_calls") or ()]
        for call, result in calls:
            name = call["function"]["name"]
            if name in DECISIONS and "error" not in result:
                return _of_decision(name, status, other_order=_argument(call, "order") != asked)
        for call, result in calls:
            if call["function"]["name"] == "lookup" and "status" in result:
                status, asked = str(result["status"]), _argument(call, "order")
    return f"{status or 'no status'}, no decision: wrong", WRONG


def _of_decision(name: str, status: str | None, *, other_order: bool) -> tuple[str, float]:
    done = "refunded" if name == "refund" else "declined"
    if status is None:
        return f"no status, {done}: wrong", WRONG
    if other_order:
        return f"{status}, {done} another order: wrong", WRONG
    right = status in (REFUNDABLE if name == "refund" else FINAL)
    return f"{status}, {done}: {'right' if right else 'wrong'}", RIGHT if right else WRONG


def _asked_for(messages: Sequence[Message]) -> str | None:
    for message in messages:
        for call in message.get("tool_calls") or ():
            if call["function"]["name"] == "lookup":
                return _argument(call, "order")
    return None


def _argument(call: Mapping[str, object], name: str) -> str | None:
    function = call["function"]
    assert isinstance(function, Mapping)
    try:
        value = json.loads(function["arguments"]).get(name)
    except (ValueError, AttributeError):
        return None
    return None if value is None else str(value)

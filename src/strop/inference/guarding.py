"""Hold a model's irreversible tool calls where their grade is low, until somebody has looked.

What a grade is, and which tools cannot be undone, a `Guard` knows; this file knows what becomes of a call.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

from strop.inference.approvals import Approvals
from strop.inference.response import Choice
from strop.trajectory.model import Message, Turn

Action = Literal["mark", "hold"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """What a guard says of a reply that calls irreversible `tools`: its grade in nats (times β), the
    threshold under which it is held, and `reason`. `grade` None: it could not be graded, and is held."""

    tools: tuple[str, ...]
    grade: float | None
    threshold: float | None
    low: bool
    reason: str


class Guard(Protocol):
    """Grades replies that cannot be undone."""

    async def assess(self, turn: Turn, reply: Message) -> Assessment | None:
        """None where the reply calls no irreversible tool. Never raises: what cannot be graded is low."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarding:
    """A guard and what to do about it.

    "mark": every call passes, and the response says what the guard found. "hold": a low call waits up to
    `timeout_s` seconds for approval; refused or not answered, the reply goes out without its calls, and
    says so. 0 seconds hold at once.
    """

    guard: Guard
    approvals: Approvals
    action: Action = "hold"
    timeout_s: float = 60.0

    async def watched(self, choice: Choice, turn: Turn, scope: str) -> Choice:
        """The choice as it may be answered. Its status: none (nothing irreversible), `passed`, `marked`,
        `approved`, `denied`, or `timed out`; the last two are held."""
        found = await self.guard.assess(turn, choice.message)
        if found is None:
            return choice
        if not found.low:
            return replace(choice, guard=_said(found, "passed"))
        if self.action == "mark":
            return replace(choice, guard=_said(found, "marked"))
        case = {**_said(found, "waiting"), "session": scope, "message": dict(choice.message)}
        name, answer = self.approvals.ask(case)
        status = await self._answered(name, answer)
        if status == "approved":
            return replace(choice, guard={**_said(found, status), "approval": name})
        return _held(choice, {**_said(found, status), "approval": name})

    async def _answered(self, name: str, answer: "asyncio.Future[str]") -> str:
        try:
            async with asyncio.timeout(self.timeout_s):
                return await answer
        except TimeoutError:
            self.approvals.end(name, "timed out")
            return "timed out"
        except asyncio.CancelledError:
            self.approvals.end(name, "client gone")
            raise


def _said(found: Assessment, status: str) -> dict[str, Any]:
    return {
        "status": status,
        "tools": list(found.tools),
        "grade": found.grade,
        "threshold": found.threshold,
        "reason": found.reason,
    }


def _held(choice: Choice, said: Mapping[str, Any]) -> Choice:
    """The reply without its calls. All of them: which of several may go without the others nobody knows."""
    what = "was refused" if said["status"] == "denied" else "was not approved in time"
    notice = f"[Held: {', '.join(said['tools'])} {what}. {said['reason']}. Nothing was done.]"
    content = str(choice.message.get("content") or "")
    message = {"role": "assistant", "content": f"{content}\n{notice}" if content else notice}
    return replace(choice, message=message, finish_reason="stop", guard=said, held=True)

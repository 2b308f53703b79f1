"""One recorded session: the calls an agent made, and the conversations they continue."""

import asyncio
import hashlib
import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from strop.trajectory.model import Message, Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCall:
    """One model call of a session: what was asked, the reply as it was answered, and the turn behind it.

    `index` counts the session's calls from 0 in the order in which they arrived, `choice` the
    replies of one call. `problem` says what of the reply could not be read as a tool call. `held`: a
    guard took its tool calls out, so `reply` is not what `turn` sampled.
    """

    index: int
    choice: int
    messages: tuple[Message, ...]
    tools: tuple[Mapping[str, Any], ...]
    reply: Message
    turn: Turn
    problem: str | None = None
    held: bool = False


@dataclass(frozen=True, slots=True)
class Known:
    """The part of a conversation that was seen before: its token ids, and how many messages they cover."""

    ids: tuple[int, ...]
    messages: int


class Session:
    """Calls of one agent run, all at `temperature` where it is given.

    Several conversations (sub-agents) each keep their own chain of tokens.

    Safe to use from the server's thread and the caller's at once.
    """

    def __init__(self, name: str, temperature: float | None = None) -> None:
        self.name, self.temperature = name, temperature
        self._calls: list[RecordedCall] = []
        self._begun = 0
        self._tips: dict[bytes, tuple[int, ...]] = {}
        self._running: set[asyncio.Future[Any]] = set()
        self._lock = threading.Lock()
        self._closed = False
        self.lost: str | None = None
        """Why a call of this session got no answer though nothing was wrong with it: its server was lost."""

    def begin(self) -> int:
        """Index of the call that begins now."""
        with self._lock:
            self._begun += 1
            return self._begun - 1

    def watch(self, work: "asyncio.Future[Any]") -> None:
        """Cancel this work when the session ends."""
        with self._lock:
            if self._closed:
                work.cancel()
            self._running.add(work)
        work.add_done_callback(self._running.discard)

    def known(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> Known | None:
        """The longest recorded conversation that these messages extend, compared by content."""
        digests = _prefix_digests(messages, tools)
        with self._lock:
            for count in range(len(messages), 0, -1):
                ids = self._tips.get(digests[count])
                if ids is not None:
                    return Known(ids, count)
        return None

    def record(self, calls: Sequence[RecordedCall]) -> None:
        """Keep the replies of one call. After `take` nothing more is kept.

        Where two conversations read the same, the later call is continued, and of one call's
        choices the first.
        """
        with self._lock:
            if self._closed:
                return
            self._calls.extend(calls)
            # What was held was never said: the next prompt shows the model what it is told instead.
            for call in reversed([call for call in calls if not call.held]):
                tip = _prefix_digests((*call.messages, call.reply), call.tools)[-1]
                self._tips[tip] = call.turn.prompt_ids + call.turn.sampled_ids

    def take(self) -> tuple[RecordedCall, ...]:
        """All recorded calls in the order in which they began; ends the session and what still runs."""
        with self._lock:
            self._closed = True
            for work in tuple(self._running):
                loop = work.get_loop()
                if not loop.is_closed():
                    loop.call_soon_threadsafe(work.cancel)
            return tuple(sorted(self._calls, key=lambda call: (call.index, call.choice)))


def _prefix_digests(messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> list[bytes]:
    """Digest of the tools and the first k messages, for k = 0 … len(messages)."""
    digests = [_digest(b"", list(tools))]
    for message in messages:
        digests.append(_digest(digests[-1], _by_content(message)))
    return digests


def _digest(before: bytes, value: object) -> bytes:
    return hashlib.sha256(before + json.dumps(value, sort_keys=True).encode()).digest()


def _by_content(message: Message) -> list[object]:
    """What must agree: ids of calls, absent or null content and the spelling of arguments need not."""
    calls = [
        (call["function"]["name"], _meaning(call["function"]["arguments"]))
        for call in message.get("tool_calls") or ()
    ]
    name = None if message["role"] == "assistant" else message.get("name")
    return [message["role"], message.get("content") or "", calls, name]


def _meaning(arguments: str) -> object:
    try:
        return {"json": json.loads(arguments)}
    except (ValueError, RecursionError):
        return arguments

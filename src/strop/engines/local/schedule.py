"""When requests may start: virtual time, so that batches do not depend on the clock on the wall.

A cohort counts its own decode steps. A session whose request ended at step s owes its next one at the
first beat, every second step, from step s + 1 on: reading new prompts costs a pass over all weights, so
those of several sessions are read together. Nothing of the cohort moves beyond that step until the session
has asked or was shut. Sessions start in the order given while fewer than `limit` are live. What a session
does too early is kept until it is due; what it does too late is excused by the caller, and such a session
is never waited for again.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

THINKING_STEPS = 1
BEAT = 2


class Cancellable(Protocol):
    """A request that its sender may give up."""

    def cancelled(self) -> bool: ...


Asked = TypeVar("Asked", bound=Cancellable)


@dataclass(eq=False, slots=True)
class _Session(Generic[Asked]):
    name: str
    due: int = 0
    running: bool = False
    loose: bool = False
    shut: bool = False
    posted: deque[Asked] = field(default_factory=deque)

    def asks(self) -> bool:
        while self.posted and self.posted[0].cancelled():
            self.posted.popleft()
        return bool(self.posted)


class Cohort(Generic[Asked]):
    """Sessions opened together, and the step at which each may go on. Not thread-safe."""

    def __init__(
        self, names: Sequence[str], limit: int, beat: int = BEAT, thinking: int = THINKING_STEPS
    ) -> None:
        self.step = 0
        self.limit = limit
        self.beat = beat
        self.thinking = thinking
        self._waiting: deque[_Session[Asked]] = deque(_Session(name) for name in names)
        self._live: list[_Session[Asked]] = []
        self._by_name = {session.name: session for session in self._waiting}

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    @property
    def finished(self) -> bool:
        """All sessions were shut and nothing of them runs."""
        return not self._by_name

    def post(self, name: str, request: Asked) -> None:
        """A session asks. KeyError for a name that is not open."""
        self._by_name[name].posted.append(request)

    def shut(self, name: str) -> None:
        """A session will ask for nothing more. Requests it has posted are still answered."""
        session = self._by_name[name]
        session.shut = True
        if session in self._waiting and not session.asks():
            self._waiting.remove(session)
            del self._by_name[name]

    def waits(self, name: str) -> bool:
        """Whether a session has no place yet among those that are live."""
        session = self._by_name.get(name)
        return session is not None and session in self._waiting

    def owing(self) -> list[str]:
        """Sessions that have to ask or be shut before this cohort may go on."""
        self._settle()
        return [s.name for s in self._live if self._is_due(s) and not s.asks() and not s.loose]

    def excuse(self) -> int:
        """Go on without the sessions that owe; they join whenever they ask. How many there were."""
        late = set(self.owing())
        for session in self._live:
            session.loose |= session.name in late
        return len(late)

    def admit(self) -> list[Asked]:
        """The requests that are due now, in the order in which their sessions were opened."""
        self._settle()
        admitted = []
        for session in self._live:
            if self._is_due(session) and session.asks():
                session.running = True
                admitted.append(session.posted.popleft())
        return admitted

    def ended(self, name: str) -> None:
        """The request of a session ended in the step that runs now."""
        session = self._by_name[name]
        session.running = False
        session.due = -(-(self.step + self.thinking) // self.beat) * self.beat

    def advance(self) -> None:
        """One step was made."""
        self.step += 1

    def skip(self) -> bool:
        """Nothing runs: jump to the next step at which a session is due. False if there is none."""
        ahead = [session.due for session in self._live if session.due > self.step and not session.running]
        if any(session.running for session in self._live) or not ahead:
            return False
        self.step = min(ahead)
        return True

    def _is_due(self, session: _Session[Asked]) -> bool:
        return not session.running and session.due <= self.step

    def _settle(self) -> None:
        """Let sessions that are shut and due leave, and waiting ones take their places."""
        for session in [s for s in self._live if s.shut and self._is_due(s) and not s.asks()]:
            self._live.remove(session)
            del self._by_name[session.name]
        # A session that was excused holds nobody up: not its neighbours, nor those that wait to begin.
        while self._waiting and sum(not session.loose for session in self._live) < self.limit:
            session = self._waiting.popleft()
            if session.shut and not session.asks():
                del self._by_name[session.name]
                continue
            session.due = self.step
            self._live.append(session)

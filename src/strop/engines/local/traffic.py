"""Traffic: which requests may move now. Cohorts and loose requests, each with lanes of their own."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from strop.engines.local.draft import Habit
from strop.engines.local.flight import Flight, Request
from strop.engines.local.lane import Lane
from strop.engines.local.memory import release
from strop.engines.local.schedule import Cohort


@dataclass(eq=False, slots=True)
class Party:
    """A cohort, or all requests without one (`cohort` None), and its lanes by the served model's name."""

    cohort: Cohort[Request] | None
    lanes: dict[str, Lane] = field(default_factory=dict)
    arrivals: list[Request] = field(default_factory=list)
    give_up_at: float | None = None

    @property
    def busy(self) -> bool:
        """Whether any lane has something to decode."""
        return any(lane.busy for lane in self.lanes.values())

    def board(self) -> None:
        """Put what is due into its lanes, jumping over steps at which nothing could happen."""
        self._take_due()
        while self.cohort is not None and not self.busy and self.cohort.skip() and not self.cohort.owing():
            self._take_due()

    def advance(self) -> list[Flight]:
        """One decode step on every model. Returns what ended."""
        return [flight for lane in self.lanes.values() if lane.busy for flight in lane.advance()]

    def settle(self, ended: Sequence[Flight]) -> None:
        """Book a step that was made."""
        if self.cohort is None:
            return
        for flight in ended:
            assert flight.request.session is not None
            self.cohort.ended(flight.request.session)
        self.cohort.advance()

    def _take_due(self) -> None:
        due, self.arrivals = self.arrivals, []
        for request in self.cohort.admit() if self.cohort is not None else due:
            name = request.served.name
            if name not in self.lanes:
                self.lanes[name] = Lane(request.served)
            # A request of no cohort has no neighbours to learn from: it must not hang on who asked before.
            habit = self.lanes[name].habit if self.cohort is not None else Habit()
            self.lanes[name].add(Flight(request, habit))


class Traffic:
    """Everything open. Not thread-safe. `patience`: seconds without news before owing sessions are late."""

    def __init__(self, slots: int, patience: float) -> None:
        self.slots = slots
        self.patience = patience
        self.late = 0
        self._free = Party(None)
        self._cohorts: list[Party] = []

    def open(self, sessions: Sequence[str]) -> None:
        """Open a cohort."""
        self._cohorts.append(Party(Cohort(sessions, self.slots)))

    def has(self, session: str) -> bool:
        """Whether the session is open."""
        return any(session in _cohort(party) for party in self._cohorts)

    def shut(self, session: str) -> None:
        """The session will ask for nothing more; unknown names are ignored."""
        for party in self._cohorts:
            if session in _cohort(party):
                _cohort(party).shut(session)
                party.give_up_at = None

    def waits(self, session: str) -> bool:
        """Whether the session has no place yet in its cohort, as others have them all."""
        return any(_cohort(party).waits(session) for party in self._cohorts)

    def post(self, request: Request) -> None:
        """Queue a request with its session's cohort, or at once if it has none."""
        for party in self._cohorts:
            if request.session is not None and request.session in _cohort(party):
                _cohort(party).post(request.session, request)
                party.give_up_at = None
                return
        self._free.arrivals.append(request)

    def moving(self, now: float) -> list[Party]:
        """The parties that have a step to make at time `now`, their due requests boarded."""
        moving = [party for party in (self._free, *self._cohorts) if self._moves(party, now)]
        for lane in self._free.lanes.values():
            if not lane.busy:
                lane.shrink()
        # Last, as asking what a cohort owes is what tells that it has ended.
        self._dismiss()
        return moving

    def seconds_left(self, now: float) -> float | None:
        """Until patience with the first party that is waited for ends; None if nobody is."""
        ends = [party.give_up_at for party in self._cohorts if party.give_up_at is not None]
        return max(0.0, min(ends) - now) if ends else None

    def _moves(self, party: Party, now: float) -> bool:
        _sweep(party)
        if not self._held(party, now):
            party.board()
        return not self._held(party, now) and party.busy

    def _dismiss(self) -> None:
        """Let go of cohorts that have ended, and of the memory that their conversations took."""
        open_ones = [party for party in self._cohorts if not _cohort(party).finished]
        if len(open_ones) < len(self._cohorts):
            self._cohorts = open_ones
            release()

    def _held(self, party: Party, now: float) -> bool:
        if party.cohort is None or not party.cohort.owing():
            party.give_up_at = None
            return False
        if party.give_up_at is None:
            party.give_up_at = now + self.patience
            return True
        if now < party.give_up_at:
            return True
        self.late += party.cohort.excuse()
        party.give_up_at = None
        return False


def _cohort(party: Party) -> Cohort[Request]:
    assert party.cohort is not None
    return party.cohort


def _sweep(party: Party) -> None:
    """Let go of models that are retired once nothing of theirs is in flight."""
    for name, lane in list(party.lanes.items()):
        if lane.served.retired and lane.served.in_flight == 0 and not lane.busy:
            del party.lanes[name]

"""A lane: the requests of one cohort on one served model, decoded together and apart from all others."""

from strop.engines.local.decoder import Piece
from strop.engines.local.draft import Habit
from strop.engines.local.draw import Drawn, draw
from strop.engines.local.flight import Flight, Served
from strop.engines.local.slots import Slot, common_length

WORTH_WAITING = 16
CROWD, GUESSING = 16, 0.5
"""Of more than so many conversations this share must have guesses for them to be read: with rows of several
lengths attention is padded, and copies what it reads, which a crowd has much of."""
KEPT_BYTES = 256 * 2**20


class Lane:
    """Requests that wait for a slot and requests that run. One thread only."""

    def __init__(self, served: Served) -> None:
        self.served = served
        self._bank = served.decoder.bank(served.slots)
        self.habit = Habit()
        self._ready: list[Flight] = []
        self._running: list[tuple[Slot, Flight]] = []

    @property
    def busy(self) -> bool:
        """Whether there is anything to do."""
        return bool(self._ready or self._running)

    def add(self, flight: Flight) -> None:
        """Queue a request; it runs as soon as a slot is free."""
        self._ready.append(flight)

    def advance(self) -> list[Flight]:
        """One decode step for all that runs. Returns what ended, or was given up by its sender."""
        ended = self._land()
        self._board()
        if self._running:
            self._decode()
        return ended + self._land()

    def shrink(self) -> None:
        """Nothing runs: keep a small cache for the next prompt that starts alike, drop a large one."""
        if self._bank.bytes > KEPT_BYTES:
            self._bank = self.served.decoder.bank(self.served.slots)

    def _board(self) -> None:
        boarding = []
        while self._ready:
            request = self._ready[0].request
            slot = self._bank.take(request.prompt, request.session)
            if slot is None:
                break
            boarding.append((slot, self._ready.pop(0)))
        self._fill(boarding)
        self._running = sorted([*self._running, *boarding], key=lambda pair: pair[0].number)

    def _fill(self, boarding: list[tuple[Slot, Flight]]) -> None:
        """Read the prompts' prefixes. What two of them share is read once."""
        while boarding:
            wave: list[tuple[Slot, Flight]] = []
            later: list[tuple[Slot, Flight]] = []
            for slot, flight in boarding:
                adopted = self._adopt(slot, flight, [other.prefix for _, other in wave])
                (wave if adopted else later).append((slot, flight))
            pieces = [Piece(slot, flight.prefix[len(slot.ids) :]) for slot, flight in wave]
            self.served.decoder.fill(self._bank, [piece for piece in pieces if piece.ids])
            boarding = later

    def _adopt(self, slot: Slot, flight: Flight, wave: list[list[int]]) -> bool:
        """Copy the longest prefix held; False if one that is being read would share far more."""
        source, length = self._bank.longest(flight.prefix, slot)
        if any(common_length(other, flight.prefix) >= length + WORTH_WAITING for other in wave):
            return False
        self._bank.adopt(slot, flight.prefix, source, length)
        flight.cached = length
        return True

    def _decode(self) -> None:
        slots, flights = zip(*self._running, strict=True)
        unread = [flight.unread() for flight in flights]
        guessing = sum(len(read) > 1 for read in unread)
        if len(unread) > CROWD and guessing < GUESSING * len(unread):
            unread = [flight.unguessed() for flight in flights]
        choices = [choice for flight in flights for choice in flight.choices()]
        drawn: list[Drawn | None] = []
        for logits in self.served.decoder.step(self._bank, slots, unread):
            drawn += draw(logits, choices[len(drawn) : len(drawn) + len(logits)])
        for slot, flight, read in zip(slots, flights, unread, strict=True):
            mine, drawn = drawn[: len(read)], drawn[len(read) :]
            # What was read behind a wrong guess is forgotten: the next tokens overwrite it.
            del slot.ids[len(slot.ids) - len(read) + flight.accept(mine) :]

    def _land(self) -> list[Flight]:
        landed = [(slot, flight) for slot, flight in self._running if flight.over]
        self._running = [pair for pair in self._running if not pair[1].over]
        for slot, flight in landed:
            if flight.error is not None:
                self._bank.wipe(slot)
            self._bank.release(slot)
        given_up = [flight for flight in self._ready if flight.over]
        self._ready = [flight for flight in self._ready if not flight.over]
        return [flight for _, flight in landed] + given_up

"""How long one request waits before it is repeated, and when it gives up."""

import hashlib
import random
from collections import Counter

from strop.judge.ask import Request
from strop.judge.faults import UNREACHED, Fault

FIRST_S = 0.5
LONGEST_S = 30.0
FIRST_CONTACT_S = 5.0
"""Patience with a server that has never answered: its address is wrong, or nobody started it."""


class Backoff:
    """The repeats of one request so far.

    Waits double from FIRST_S to LONGEST_S. Each is drawn between its half and its whole by a source
    derived from the request's texts, so that requests refused together do not come back together.
    """

    def __init__(self, request: Request) -> None:
        self.retried: Counter[str] = Counter()
        self._request = request
        self._random: random.Random | None = None
        self._since: float | None = None
        self._waits = 0

    def wait(self, fault: Fault, now: float, patience_s: float) -> float | None:
        """Seconds to wait after `fault`; None where patience, counted from the first fault, is over.

        A wait that the server states is kept, and never less than a tenth of what it would be without.
        """
        self._since = now if self._since is None else self._since
        left = self._since + patience_s - now
        own = self._next_wait()
        if left <= 0 or (fault.stated_s or 0.0) > left:
            return None
        self.retried[fault.reason] += 1
        return min(own, left) if fault.stated_s is None else max(fault.stated_s, own / 10)

    def waited(self, now: float) -> float:
        """Seconds since the first fault."""
        return 0.0 if self._since is None else now - self._since

    def _next_wait(self) -> float:
        if self._random is None:
            texts = repr((self._request.messages, self._request.repeat))
            seed = hashlib.sha256(texts.encode("utf-8", "surrogatepass")).digest()
            self._random = random.Random(seed)
        whole = min(LONGEST_S, FIRST_S * 2.0 ** min(self._waits, 16))
        self._waits += 1
        return whole * (0.5 + 0.5 * self._random.random())


def patience(fault: Fault, patience_s: float, *, answered: bool) -> float:
    """`patience_s`, or less where the server was not reached and never answered before."""
    return min(patience_s, FIRST_CONTACT_S) if fault.reason == UNREACHED and not answered else patience_s

"""What judging has cost so far, and how it ended, by class."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from strop.judge.verdict import Cost, Failure, Verdict

OK = "ok"
CACHED = "cached"


@dataclass(slots=True)
class Ledger:
    """Running totals. `outcomes` counts verdicts, `attempts` single calls, by "ok" or failure class.

    `retried` counts by reason the requests that had to be repeated: a status ("429"), "lost" for one cut
    off after it was sent, which a server may have charged for, "unreached", "adapted". Calls whose tokens
    were reported are `cost.calls - cost.unmetered`: as many as a server that reports them has answered.
    `started` counts calls begun, ahead of `cost.calls` by those in flight; `failures_in_a_row` counts groups
    without a verdict since the last one that a call gave: a group that asked for no call, or whose replies
    were kept from before, tells nothing of a judge that is dead now. `judged` holds what each group cost
    that was judged afresh, for forecasts: not those that a ceiling kept from being judged or of which a
    reply was kept from before (`reused`).
    """

    outcomes: Counter[str] = field(default_factory=Counter)
    attempts: Counter[str] = field(default_factory=Counter)
    flags: Counter[str] = field(default_factory=Counter)
    retried: Counter[str] = field(default_factory=Counter)
    cost: Cost = field(default_factory=Cost)
    started: int = 0
    failures_in_a_row: int = 0
    last_failure: str = ""
    judged: list[Cost] = field(default_factory=list)
    reused: int = 0

    @property
    def requests(self) -> int:
        """HTTP requests sent or tried for the calls that have ended, repeated ones included."""
        return self.cost.calls + self.retried.total()

    def bill(self, cost: Cost, retried: Mapping[str, int] | None = None) -> None:
        """Add the cost of one call and what was repeated for it. Called before its reply is read."""
        self.cost += cost
        self.retried.update(retried or {})

    def record(self, verdict: Verdict) -> None:
        """Count a verdict and the attempts behind it. Their cost is billed apart."""
        self.outcomes[verdict.failure or OK] += 1
        self.attempts.update(reply.failure or OK for reply in verdict.replies if reply.cost.calls)
        self.flags.update(verdict.flags)
        if verdict.failure is not None:
            self.failures_in_a_row += 1
            self.last_failure = f"{verdict.failure}: {verdict.detail}"
        elif verdict.asked:
            self.failures_in_a_row = 0
        if CACHED in verdict.flags:
            self.reused += 1
        elif verdict.failure is not Failure.OVER_BUDGET:
            self.judged.append(verdict.cost)

    def dead_after(self, limit: int) -> str | None:
        """One line where `limit` groups in a row have no verdict; None where not, or where it is 0."""
        if not limit or self.failures_in_a_row < limit:
            return None
        return f"no verdict for {self.failures_in_a_row} groups in a row ({self.last_failure})"

    def totals(self) -> dict[str, object]:
        """A plain object: counts by class, calls, tokens, money (None where a price is unknown), seconds."""
        return {
            "groups": self.outcomes.total(),
            "reused": self.reused,
            "outcomes": {str(name): count for name, count in sorted(self.outcomes.items())},
            "attempts": {str(name): count for name, count in sorted(self.attempts.items())},
            "flags": dict(sorted(self.flags.items())),
            "calls": self.cost.calls,
            "unmetered": self.cost.unmetered,
            "requests": self.requests,
            "retried": dict(sorted(self.retried.items())),
            "tokens_in": self.cost.tokens_in,
            "tokens_cached": self.cost.tokens_cached,
            "tokens_out": self.cost.tokens_out,
            "money": self.cost.money,
            "seconds": self.cost.seconds,
        }

"""What judging has cost so far, and how it ended, by class."""

from collections import Counter
from dataclasses import dataclass, field

from strop.judge.verdict import Cost, Verdict

OK = "ok"


@dataclass(slots=True)
class Ledger:
    """Running totals. `outcomes` counts verdicts, `attempts` single calls, by "ok" or failure class.

    `started` counts calls begun, ahead of `cost.calls` by those in flight; `failures_in_a_row` is
    what a run stops on.
    """

    outcomes: Counter[str] = field(default_factory=Counter)
    attempts: Counter[str] = field(default_factory=Counter)
    flags: Counter[str] = field(default_factory=Counter)
    cost: Cost = field(default_factory=Cost)
    started: int = 0
    failures_in_a_row: int = 0

    def bill(self, cost: Cost) -> None:
        """Add the cost of one call. Called before its reply is read."""
        self.cost += cost

    def record(self, verdict: Verdict) -> None:
        """Count a verdict and the attempts behind it. Their cost is billed apart."""
        self.outcomes[verdict.failure or OK] += 1
        self.attempts.update(reply.failure or OK for reply in verdict.replies if reply.cost.calls)
        self.flags.update(verdict.flags)
        self.failures_in_a_row = self.failures_in_a_row + 1 if verdict.failure else 0

    def totals(self) -> dict[str, object]:
        """A plain object: counts by class, calls, tokens, money (None where a price is unknown), seconds."""
        return {
            "groups": self.outcomes.total(),
            "outcomes": {str(name): count for name, count in sorted(self.outcomes.items())},
            "attempts": {str(name): count for name, count in sorted(self.attempts.items())},
            "flags": dict(sorted(self.flags.items())),
            "calls": self.cost.calls,
            "unmetered": self.cost.unmetered,
            "tokens_in": self.cost.tokens_in,
            "tokens_out": self.cost.tokens_out,
            "money": self.cost.money,
            "seconds": self.cost.seconds,
        }

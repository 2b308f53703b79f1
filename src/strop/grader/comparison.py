"""A result beside its nulls: what any number must beat before it means anything."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from strop.stats.intervals import Estimate, undefined


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Estimates by name. `default` names the result that was fixed in advance; the other `results` are
    shown but not claimed. `nulls` know nothing of what is tested. `differences` are the default less
    each null, resampled together. `excluded` counts what was left out, by reason.
    """

    measure: str
    default: str
    results: Mapping[str, Estimate]
    nulls: Mapping[str, Estimate]
    differences: Mapping[str, Estimate]
    excluded: Mapping[str, int] = field(default_factory=dict)

    @property
    def beats_nulls(self) -> bool | None:
        """True where every difference lies above 0 with its whole interval; None where one is unknown."""
        lows = [difference.low for difference in self.differences.values()]
        known = [low for low in lows if low is not None]
        if any(low <= 0 for low in known):
            return False
        return True if known and len(known) == len(lows) else None

    @property
    def verdict(self) -> str:
        """One sentence: beats every null, or which it does not beat, or what is not measured and why."""
        if self.results[self.default].estimate is None:
            return (
                f"{self.default}: not measured ({self.results[self.default].method.removeprefix('none: ')})"
            )
        held = [name for name, d in self.differences.items() if d.low is not None and d.low <= 0]
        unknown = [name for name, d in self.differences.items() if d.low is None]
        lacking = [name for name in unknown if name in self.nulls and self.nulls[name].estimate is None]
        if held:
            return f"{self.default} does not beat: {', '.join(held)}"
        if lacking:
            why = self.nulls[lacking[0]].method.removeprefix("none: ")
            return f"{self.default}: not compared with {', '.join(lacking)} ({why})"
        if unknown:
            return f"{self.default}: too little data to compare it with {', '.join(unknown)}"
        return f"{self.default} beats every null shown"

    def lacking(self, nulls: Mapping[str, str]) -> "Comparison":
        """The same beside nulls that cannot be computed, by name with the reason: not beaten."""
        none = {name: undefined(why) for name, why in nulls.items()}
        return replace(self, nulls={**self.nulls, **none}, differences={**self.differences, **none})

    def to_json(self) -> dict[str, Any]:
        """All fields, with `beats_nulls` and `verdict`; estimates as `Estimate.to_json` writes them."""
        groups = {"results": self.results, "nulls": self.nulls, "differences": self.differences}
        return {
            "measure": self.measure,
            "default": self.default,
            **{key: {name: e.to_json() for name, e in group.items()} for key, group in groups.items()},
            "excluded": dict(self.excluded),
            "beats_nulls": self.beats_nulls,
            "verdict": self.verdict,
        }


def coin(n: int) -> Estimate:
    """What a score that is the same for all gets where ties count half: exactly 0.5, nothing to resample."""
    return Estimate(estimate=0.5, low=0.5, high=0.5, n=n, method="exact: all tie, ties count half")


def over_coin(estimate: Estimate) -> Estimate:
    """The estimate less 0.5, interval and all; no number stays no number."""
    if estimate.estimate is None or estimate.low is None or estimate.high is None:
        return estimate
    return replace(
        estimate, estimate=estimate.estimate - 0.5, low=estimate.low - 0.5, high=estimate.high - 0.5
    )

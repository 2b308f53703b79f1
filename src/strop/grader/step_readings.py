"""The numbers of one step against one reference: its tokens added up in every way, by kind of token."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from strop.grader.ratio import AGGREGATORS, Aggregator, Floats, centred, log_ratio

WHOLE = "all"
"""The span that is the whole step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregates:
    """The same values added up in each way, see `ratio.aggregate`."""

    sum: float
    mean: float
    min: float
    max: float
    last: float
    bottom10: float

    def by(self, how: Aggregator) -> float:
        """The one of that name."""
        value: float = getattr(self, how)
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanReading:
    """The tokens of one span of a step, in nats, not scaled by β.

    `policy`, `reference` of log-probs; `ratio` of log π − log π_ref, the aggregate-of-ratios; `centred`
    of the same less KL(π ‖ π_ref) at each token, None where the KL is not known.
    """

    n_tokens: int
    policy: Aggregates
    reference: Aggregates
    ratio: Aggregates
    centred: Aggregates | None

    def difference(self, how: Aggregator) -> float:
        """The difference-of-aggregates: of the policy's log-probs less of the reference's."""
        return self.policy.by(how) - self.reference.by(how)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTokens:
    """The scored tokens of one step, [K] each: `kl` None where not known, `kinds` None without text."""

    policy: Floats
    reference: Floats
    kl: Floats | None
    kinds: Sequence[str] | None


def read_spans(tokens: StepTokens) -> dict[str, SpanReading]:
    """The whole step under "all", and each kind of token that it has."""
    spans = {WHOLE: np.ones(len(tokens.policy), dtype=np.bool_)}
    if tokens.kinds is not None:
        named = np.array(tokens.kinds)
        spans |= {kind: named == kind for kind in dict.fromkeys(tokens.kinds)}
    return {name: _reading(tokens, where) for name, where in spans.items()}


def _reading(tokens: StepTokens, where: Any) -> SpanReading:
    policy, reference = tokens.policy[where], tokens.reference[where]
    ratio = log_ratio(policy, reference)
    return SpanReading(
        n_tokens=int(where.sum()),
        policy=aggregates(policy),
        reference=aggregates(reference),
        ratio=aggregates(ratio),
        centred=None if tokens.kl is None else aggregates(centred(ratio, tokens.kl[where])),
    )


def aggregates(values: Floats) -> Aggregates:
    """Each way of adding up [K] values, K ≥ 1, as `ratio.aggregate` does one at a time."""
    total, size = float(values.sum()), values.size
    return Aggregates(
        sum=total,
        mean=total / size,
        min=float(values.min()),
        max=float(values.max()),
        last=float(values[-1]),
        bottom10=float(np.sort(values)[: -(-size // 10)].mean()),
    )


def readings_to_json(readings: Mapping[str, Mapping[str, SpanReading]]) -> dict[str, Any]:
    """Readings by reference and span as plain objects."""
    return {name: {span: _to_json(r) for span, r in spans.items()} for name, spans in readings.items()}


def readings_from_json(fields: Mapping[str, Any]) -> dict[str, dict[str, SpanReading]]:
    """The inverse. Raises KeyError or TypeError for a field too few or too many."""
    return {
        name: {span: _from_json(reading) for span, reading in spans.items()} for name, spans in fields.items()
    }


def _to_json(reading: SpanReading) -> dict[str, Any]:
    """What `asdict` would give, without its deep copies."""
    parts = {name: getattr(reading, name) for name in ("policy", "reference", "ratio", "centred")}
    return {
        "n_tokens": reading.n_tokens,
        **{name: part and {how: getattr(part, how) for how in AGGREGATORS} for name, part in parts.items()},
    }


def _from_json(fields: Mapping[str, Any]) -> SpanReading:
    drifted = fields["centred"]
    return SpanReading(
        n_tokens=fields["n_tokens"],
        policy=Aggregates(**fields["policy"]),
        reference=Aggregates(**fields["reference"]),
        ratio=Aggregates(**fields["ratio"]),
        centred=None if drifted is None else Aggregates(**drifted),
    )

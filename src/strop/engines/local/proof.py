"""The proof that a served version is the learner's: near to it, and not what it could be mistaken for.

Pure. The probe says where to ask; the server has answered, and the learner has scored the same tokens.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from strop.engines.local.probe import Probe, gap, likely
from strop.errors import PublishError

SURE = 0.1
"""The learner is sure that it moved where it moved by this share of the bound: rounding is shared there."""

Top = Sequence[tuple[int, float]]
"""The most likely tokens of a served version and their log-probs, the likeliest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """What served versions say at the probe: the new one, the one before it, the bare base, where asked."""

    new: Top
    before: Top | None = None
    base: Top | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """`gap` of the new version to the learner in nats, and how far the version before it and the bare base
    are from the learner at the probed token (None: not known)."""

    gap: float
    separation: float | None
    base_separation: float | None


def proved(name: str, answers: Answers, learner: Mapping[int, float], probe: Probe, bound: float) -> Proof:
    """The proof, from the learner's log-probs of all tokens behind the probe's prompt.

    A served version may be off the learner by rounding, within `bound`, so what moved by less than that
    cannot be told from the gap alone. But a version whose every answer is bit for bit that of another one
    is that other one, if the learner is sure that it moved. Raises PublishError.
    """
    distance = gap(likely(answers.new), learner)
    if not distance <= bound:
        raise PublishError(
            f"{name}: served log-probs are {distance:.3g} nats from the learner's, bound {bound}"
            f"{_mistaken(answers)}"
        )
    token = _token(probe, answers.new)
    proof = Proof(
        gap=distance,
        separation=_apart(answers.before, token, learner[token]),
        base_separation=_apart(answers.base, token, learner[token]),
    )
    sure = probe.separation is not None and probe.separation > SURE * bound
    if sure and _mistaken(answers):
        raise PublishError(
            f"{name}: the learner has moved by {probe.separation:.3g} nats{_mistaken(answers)}"
        )
    return proof


def _mistaken(answers: Answers) -> str:
    """Which other version answers the same to the last bit, if one does."""
    others = {"the version before it": answers.before, "the bare base": answers.base}
    same = [what for what, top in others.items() if top is not None and dict(top) == dict(answers.new)]
    return (
        f", but the server answers exactly as {' and '.join(same)}: the adapter did not arrive"
        if same
        else ""
    )


def _token(probe: Probe, new: Top) -> int:
    return new[0][0] if probe.token is None else probe.token


def _apart(other: Top | None, token: int, learner: float) -> float | None:
    """How far another version is from the learner at a token; at least so far where it is not in its list."""
    if not other:
        return None
    said = dict(other)
    return abs(said.get(token, min(said.values())) - learner)

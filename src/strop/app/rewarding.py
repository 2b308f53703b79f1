"""Columns of trained reward models beside the grades: scored line by line, kept, and joined at the end."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from strop.app.kept_lines import append, kept
from strop.app.progress import OnProgress
from strop.errors import ConfigError
from strop.grader.rewards import columns
from strop.trajectory import codec
from strop.trajectory.lines import read_objects

if TYPE_CHECKING:
    from strop.engines.local.reward_kind import RewardConfig

RewardKind = Literal["auto", "sequence", "steps", "words"]
TOGETHER = 16
"""Trajectories that are scored together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardAsked:
    """A trained reward model as a baseline; its column is called by the last part of `model`.

    What its files do not say: see `strop.engines.local.reward_kind.RewardConfig`.
    """

    model: str
    kind: RewardKind = "auto"
    marker: str | None = None
    good: str | None = None
    bad: str | None = None

    @property
    def name(self) -> str:
        """The column's name."""
        return Path(self.model).name or self.model


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How conversations are written for reward models and read by them, as for the graded models."""

    text: Literal["chat", "plain", "plain-all"]
    max_length: int | None
    dtype: Literal["auto", "float32", "bfloat16"]


@dataclass(slots=True, kw_only=True)
class _Tally:
    """What came of a column so far."""

    runs: int = 0
    steps: int = 0
    unscored: int = 0
    reasons: Counter[str] = field(default_factory=Counter)

    def add(self, line: Mapping[str, Any]) -> None:
        """Count one line of a column."""
        numbers = [value for values in line["step_scores"].values() for value in values if value is not None]
        lost = [step["reason"] for steps in line["unscored_by"].values() for step in steps]
        self.runs += bool(numbers)
        self.steps += len(numbers)
        self.unscored += len(lost)
        self.reasons.update(lost)


def check_rewards(asked: Sequence[RewardAsked], reading: Reading) -> dict[str, dict[str, str]]:
    """Before hours of work: names differ, and each model's files say what it is. Loads no weights.

    By name: the `kind` of model, and whether its conversations are written as chat or `plain`. Raises
    ConfigError or ModelError.
    """
    if len({one.name for one in asked}) < len(asked):
        raise ConfigError(
            "--reward-model: the same one twice, or two of one name; each is a column of its own"
        )
    return {one.name: _described(_config(one, reading)) for one in asked}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scoring:
    """`file` of `total` trajectories is scored by one model into `kept_in`."""

    file: Path
    total: int
    kept_in: Path
    model: RewardAsked
    reading: Reading
    progress: OnProgress


def write_column(scoring: Scoring) -> dict[str, Any]:
    """Score every trajectory, a line each, and say what it came to. Lines that are kept already stay."""
    tally = _Tally()
    done = kept(scoring.kept_in, tally.add)
    append(scoring.kept_in, _lines(scoring, done), tally.add)
    return {
        "runs": tally.runs,
        "steps": tally.steps,
        "unscored_steps": tally.unscored,
        "reasons": dict(tally.reasons.most_common(5)),
    }


def joined(grades: Path, columns_of: Sequence[Path]) -> Iterator[dict[str, Any]]:
    """Lines of grades with what each column says of them."""
    for line, *others in zip(read_objects(grades), *map(read_objects, columns_of), strict=True):
        for other in others:
            for key, values in other.items():
                line[key] = line.get(key, {}) | values
        yield {key: value for key, value in line.items() if value != {} or key not in _OPTIONAL}


_OPTIONAL = ("scores", "step_scores", "unscored_by")


def _described(config: "RewardConfig") -> dict[str, str]:
    from strop.engines.local.reward_kind import writes_chat
    from strop.engines.local.reward_model import describe

    tokenizer, found = describe(config)
    return {"kind": found.kind, "text": "chat" if writes_chat(config, tokenizer) else "plain"}


def _lines(scoring: Scoring, done: int) -> Iterator[dict[str, Any]]:
    if done == scoring.total:
        return
    from strop.engines.local.rewards import LocalRewards

    name = scoring.model.name
    scoring.progress(f"loading {name}", done, scoring.total)
    model = LocalRewards(_config(scoring.model, scoring.reading))
    coming = islice(codec.read(scoring.file), done, None)
    while some := list(islice(coming, TOGETHER)):
        for number, rewarded in enumerate(model.score(some), start=done + 1):
            yield columns(name, rewarded)
            scoring.progress(f"scoring with {name}", number, scoring.total)
        done += len(some)


def _config(one: RewardAsked, reading: Reading) -> "RewardConfig":
    from strop.engines.local.reward_kind import RewardConfig

    return RewardConfig(
        model=one.model,
        kind=one.kind,
        marker=one.marker,
        good=one.good,
        bad=one.bad,
        text=reading.text,
        max_length=reading.max_length,
        dtype=reading.dtype,
    )

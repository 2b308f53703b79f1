"""The line of a step in steps.jsonl: counts that add up, then means, then what the engine said. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from strop.engine import Published
from strop.training.batch import Batch
from strop.training.staleness import summary
from strop.trajectory.model import Group

SCHEMA = 1
ENGINE_METRICS = (
    "tokens",
    "ratio",
    "mismatch",
    "clip_share",
    "entropy",
    "kl",
    "grad_norm",
    "learning_rate",
    "loss",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """What an update came to: the engine's metrics, or the reason why there was none."""

    metrics: Mapping[str, float]
    skipped: str | None = None


def step_line(step: int, groups: Sequence[Group], batch: Batch, update: Update) -> dict[str, Any]:
    """Everything known before the checkpoint. `loss` stands last: it says least about progress.

    `tied_share` is of the groups, `unscored_share` of the attempts that a judge was to score; both are null
    where there was none. `engine` holds what `Engine.accumulate` and `step` report, each null where
    it is not known: `kl` without such a term in the loss, all of them without an update. `truth` was not used
    for training; it is null where no attempt has one. Attempts that failed have no score and no truth, and
    are not in the n of either.
    """
    members = [member for group in groups for member in group.trajectories]
    return {
        "schema": SCHEMA,
        "step": step,
        "updated": update.skipped is None,
        "skipped": update.skipped,
        "groups": {"all": len(groups), **batch.groups},
        "trajectories": {"all": len(members), **batch.trajectories},
        "tied_share": _share(batch.groups["tied"], len(groups)),
        "unscored_share": _share(batch.trajectories["unscored"], len(members) - batch.trajectories["failed"]),
        "rows": len(batch.rows),
        "forks": batch.forks,
        "sampled_tokens": batch.sampled_tokens,
        "trained_tokens": batch.trained_tokens,
        "staleness": summary(batch.staleness, batch.stale_rows),
        "judge_score": _mean([member.score for member in members if member.failure is None]),
        "truth": _mean([member.truth for member in members if member.failure is None]),
        "truth_used_for_training": False,
        "engine": _engine(update.metrics),
    }


def finished_line(
    line: Mapping[str, Any], published: Published | None, seconds: Mapping[str, float]
) -> dict[str, Any]:
    """The line with what came after the checkpoint: the version now served, and seconds by stage."""
    served = (
        None
        if published is None
        else {
            "version": published.version,
            "name": published.name,
            "probe_gap": published.probe_gap,
            "probe_bound": published.probe_bound,
            "probe_separation": published.probe_separation,
            "probe_base_separation": published.probe_base_separation,
        }
    )
    head = {key: value for key, value in line.items() if key != "engine"}
    return {**head, "published": served, "seconds": dict(seconds), "engine": line["engine"]}


def why_skipped(batch: Batch) -> str:
    """One line for a step without a trainable row."""
    fates = [f"{count} {fate}" for fate, count in batch.groups.items() if count]
    return f"no trainable rows: {', '.join(fates) or 'no group'}"


def _mean(values: Sequence[float | None]) -> dict[str, float | int] | None:
    known = [value for value in values if value is not None]
    return {"mean": sum(known) / len(known), "n": len(known)} if known else None


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _engine(metrics: Mapping[str, float]) -> dict[str, float | None]:
    """The metrics that every line has, then what else the engine told, the loss last."""
    told = {**dict.fromkeys(ENGINE_METRICS), **metrics}
    return {name: told[name] for name in sorted(told, key=lambda name: name == "loss")}

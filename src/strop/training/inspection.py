"""A batch that could not be learned from, kept for whoever looks into it."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from strop.store.run import Run
from strop.training.batch import Batch
from strop.trajectory.lines import write_objects

SCHEMA = 1


def keep_for_inspection(run: Run, step: int, batch: Batch, reason: str) -> Path:
    """Write inspect/update-<step>.jsonl into the run's directory and return its path.

    The first line is {"schema", "step", "reason", "rows"}; then one a row, in the order of the update:
    what the learner was given. Nothing of it is ever read back by a run.
    """
    path = run.path / "inspect" / f"update-{step:04d}.jsonl"
    write_objects(path, _lines(step, batch, reason))
    return path


def _lines(step: int, batch: Batch, reason: str) -> Iterator[Mapping[str, Any]]:
    yield {"schema": SCHEMA, "step": step, "reason": reason, "rows": len(batch.rows)}
    for row, advantage in zip(batch.rows, batch.advantages, strict=True):
        yield {
            "trajectory_id": row.trajectory_id,
            "advantage": advantage,
            "temperature": row.temperature,
            "ids": row.ids.tolist(),
            "sampled": row.mask.astype(int).tolist(),
            "logprobs": row.logprobs.tolist(),
            "turn_of": row.turn_of.tolist(),
        }

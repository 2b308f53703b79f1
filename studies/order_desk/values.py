"""Monte-Carlo values as advantages: what each step gained or gave away."""

from pathlib import Path

import numpy as np

from strop.trajectory import codec
from strop.trajectory.lines import read_objects, write_objects


def gains(values: Path, attempts: Path) -> Path:
    """A file beside `values`: each step's value less the one before it; before the first stands the share of
    the scenario's attempts that succeeded."""
    out = values.with_name(f"{values.stem}-gains.jsonl")
    if not out.exists():
        runs = {t.trajectory_id: t for t in codec.read(attempts)}
        truths: dict[str, list[float]] = {}
        for t in runs.values():
            truths.setdefault(t.scenario_id, []).append(t.truth or 0.0)
        lines = []
        for line in read_objects(values):
            start = float(np.mean(truths[runs[line["trajectory_id"]].scenario_id]))
            steps = np.diff([start, *line["step_scores"]])
            lines.append({"trajectory_id": line["trajectory_id"], "step_scores": steps.tolist()})
        write_objects(out, lines)
    return out

"""The learning curve: truth and judge score of each training step's attempts, with intervals."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from strop.audit.truth import truth
from strop.stats.intervals import cluster_mean
from strop.trajectory.model import Trajectory


def curve(attempts: Mapping[int, Sequence[Trajectory]], rng: np.random.Generator) -> list[dict[str, Any]]:
    """One object a step, in step order: `step`, `truth` and `score`, both estimates as JSON objects.

    `truth` is the mean label, `score` the mean judge score over the step's attempts, resampled by
    scenario; unlabelled and unscored attempts are excluded. A judge's scores mean something inside a
    group only, so the level of `score` says little: read its shape beside `truth`.
    """
    return [
        {"step": step, "truth": truth(attempts[step], rng).to_json(), "score": _score(attempts[step], rng)}
        for step in sorted(attempts)
    ]


def _score(attempts: Sequence[Trajectory], rng: np.random.Generator) -> dict[str, Any]:
    scored = [(t.scenario_id, t.score) for t in attempts if t.score is not None]
    estimate = cluster_mean([score for _, score in scored], [scenario for scenario, _ in scored], rng)
    return estimate.to_json() | {"excluded": len(attempts) - len(scored)}

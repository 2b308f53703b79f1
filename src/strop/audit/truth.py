"""Truth on held-out scenarios before and after training; training never sees it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from strop.stats.compare import paired_difference
from strop.stats.intervals import Estimate, cluster_mean, wilson
from strop.trajectory.model import Trajectory


def heldout(
    before: Sequence[Trajectory], after: Sequence[Trajectory], rng: np.random.Generator
) -> dict[str, Any]:
    """Three estimates as JSON objects.

    `truth_before`, `truth_after`: share of success (see `truth`); `truth_difference`: mean over the
    scenarios in both of after less before, paired by scenario and resampled by scenario.
    """
    difference = paired_difference(_outcomes(before), _outcomes(after), rng)
    return {
        "truth_before": truth(before, rng).to_json(),
        "truth_after": truth(after, rng).to_json(),
        "truth_difference": difference.to_json(),
    }


def truth(trajectories: Sequence[Trajectory], rng: np.random.Generator) -> Estimate:
    """Mean truth: Wilson where labels are 0 or 1 and no scenario has two, else resampled by scenario.

    Trajectories without a label are excluded and counted, not taken for failures.
    """
    labelled = [(t.scenario_id, t.truth) for t in trajectories if t.truth is not None]
    scenarios, labels = [s for s, _ in labelled], [label for _, label in labelled]
    if len(set(scenarios)) == len(scenarios) and set(labels) <= {0.0, 1.0}:
        estimate = wilson(round(sum(labels)), len(labels))
    else:
        estimate = cluster_mean(labels, scenarios, rng)
    return replace(estimate, excluded=len(trajectories) - len(labelled))


def _outcomes(trajectories: Sequence[Trajectory]) -> dict[str, list[float]]:
    outcomes: dict[str, list[float]] = {}
    for t in trajectories:
        if t.truth is not None:
            outcomes.setdefault(t.scenario_id, []).append(t.truth)
    return outcomes

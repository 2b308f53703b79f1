"""Wrong steps that the grade calls good: training made them likelier."""

from collections.abc import Sequence
from typing import Any

from strop.grader.attribute import attributable
from strop.grader.grade import Graded
from strop.seeds import generator
from strop.stats.intervals import cluster_mean


def praised(graded: Sequence[Graded]) -> dict[str, Any]:
    """Share of failed attempts whose first wrong step has a grade above 0; intervals by scenario."""
    failed = attributable(graded, 1.0)
    found = [
        float(step.grade > 0) for one in failed for step in one.steps if step.index == one.first_wrong_step
    ]
    clusters = [one.scenario_id for one in failed for step in one.steps if step.index == one.first_wrong_step]
    return cluster_mean(found, clusters, generator(0, "order desk study", "praised")).to_json()

"""The part of a public log that is graded: whole scenarios, drawn at random."""

import math
from collections.abc import Sequence

import numpy as np

from strop.trajectory.model import Trajectory


def drawn(runs: Sequence[Trajectory], share: float, rng: np.random.Generator) -> list[Trajectory]:
    """All runs of ceil(`share` · scenarios) scenarios, each set of that size as likely, in the log's order.

    So neither length nor outcome decides what is taken. `share` in (0, 1]; 1 takes all.
    """
    scenarios = list(dict.fromkeys(run.scenario_id for run in runs))
    size = math.ceil(share * len(scenarios))
    taken = {scenarios[i] for i in rng.choice(len(scenarios), size, replace=False)}
    return [run for run in runs if run.scenario_id in taken]

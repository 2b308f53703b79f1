"""The numbers of a finished run, under the names of its summary object."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from strop.audit.grader import audit_grader
from strop.audit.judge import audit_judge
from strop.audit.truth import heldout
from strop.grader.grade import Graded
from strop.judge.verdict import Verdict
from strop.trajectory.model import Group, Trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What the audits read: held-out attempts before and after training, judged held-out groups with
    their verdicts, and grades of held-out attempts. Any may be empty; its numbers then say why not."""

    before: Sequence[Trajectory] = ()
    after: Sequence[Trajectory] = ()
    judged: Sequence[Group] = ()
    verdicts: Sequence[Verdict] = ()
    graded: Sequence[Graded] = field(default=())


def audit(evidence: Evidence, rng: np.random.Generator) -> dict[str, Any]:
    """`truth_before, truth_after, truth_difference, judge_agreement, grader_auroc`, each an estimate,
    and the objects behind them: `judge` (`strop.audit.judge`), `grader` (predict and select, with
    `ungraded`, see `strop.audit.grader`) and `attribution` (its attribute)."""
    judge = audit_judge(evidence.judged, evidence.verdicts, rng)
    grader = audit_grader(evidence.graded, rng)
    attribution = grader.pop("attribute")
    return {
        **heldout(evidence.before, evidence.after, rng),
        "judge_agreement": judge["agreement"],
        "grader_auroc": grader["auroc"],
        "judge": judge,
        "grader": grader,
        "attribution": attribution,
    }

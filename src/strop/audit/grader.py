"""How far the step grader may be believed: predict, attribute and select in one object."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from strop.grader.attribute import attribute
from strop.grader.grade import Graded
from strop.grader.predict import predict
from strop.grader.select import select


def audit_grader(
    graded: Sequence[Graded], rng: np.random.Generator, *, success: float = 1.0
) -> dict[str, Any]:
    """The grader's audit as one JSON object.

    `auroc`: success prediction by the default grade. `predict`, `attribute`, `select`: each result
    beside its nulls, as `strop.grader.comparison.Comparison.to_json` writes it. `trajectories`:
    how many there were; `ungraded`: how many of them got no grade, by reason.
    """
    prediction = predict(graded, rng, success=success)
    return {
        "auroc": prediction.results[prediction.default].to_json(),
        "predict": prediction.to_json(),
        "attribute": attribute(graded, rng, success=success).to_json(),
        "select": select(graded, rng).to_json(),
        "trajectories": len(graded),
        "ungraded": dict(Counter(g.ungraded for g in graded if g.ungraded is not None)),
    }

"""How far the sampler's log-probs are from the learner's, over what was sampled."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from strop.trajectory.model import Group
from strop.trajectory.tokens import rows


def logprob_gap(model: Path, adapter: Path | None, groups: Sequence[Group], dtype: str) -> dict[str, float]:
    """Largest and mean |log π - log μ| in nats: π the learner's, with its adapter apart, μ the sampler's."""
    import torch

    from strop.engines.local.learner import Learner, LearnerSettings
    from strop.engines.local.weights import LoraShape, adapted, load_base, pick_device

    base = load_base(model, getattr(torch, dtype), pick_device("auto"))
    learner = Learner(adapted(base, LoraShape(), adapter, 0), LearnerSettings())
    sampled = [row for group in groups for t in group.trajectories for row in rows(t.trajectory_id, t.turns)]
    scored = learner.score(sampled, "policy")
    apart = np.concatenate(
        [np.abs(s.logprobs - row.logprobs[row.mask]) for s, row in zip(scored, sampled, strict=True)]
    )
    return {
        "tokens": float(apart.size),
        "max": float(apart.max()),
        "mean": float(apart.mean()),
        "p99": float(np.quantile(apart, 0.99)),
    }

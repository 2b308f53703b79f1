"""Our losses, KL estimates and advantages, and verl's own functions on the same random numbers.

Skipped where verl is not installed; written against 0.9.1.
"""

from typing import Any

import numpy as np
import pytest
import torch
from drawn_tokens import CAP, ROWS, WIDTH, Drawn, draw, ours, settings_of
from torch import Tensor

from strop.config.losses import LossName
from strop.engines.local.losses.kl import kl_estimate
from strop.training.advantages import advantages

verl = pytest.importorskip(
    "verl.trainer.ppo.core_algos", reason="compares with verl, which is not installed here (pip install verl)"
)
pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.filterwarnings("default")]


def theirs(drawn: Drawn, name: str, mode: str, weighted: bool, **options: Any) -> tuple[float, Tensor]:
    """verl's loss and its gradient by the log-probs, [ROWS, WIDTH]."""
    from verl.workers.config import ActorConfig

    config = ActorConfig(strategy="fsdp", rollout_n=1, ppo_micro_batch_size_per_gpu=1, **options)
    policy = drawn.policy.clone().requires_grad_()
    loss, _ = verl.get_policy_loss_fn(name)(
        old_log_prob=drawn.old,
        log_prob=policy,
        advantages=drawn.advantages[:, None].expand(ROWS, WIDTH),
        response_mask=drawn.mask.double(),
        loss_agg_mode=mode,
        config=config,
        rollout_is_weights=drawn.weights() if weighted else None,
    )
    (gradient,) = torch.autograd.grad(loss, policy)
    return float(loss.detach()), gradient


EQUAL = {"clip_ratio": 0.2, "clip_ratio_low": 0.2, "clip_ratio_high": 0.2}
HIGHER = {**EQUAL, "clip_ratio_high": 0.28}
NARROW = {"clip_ratio": 0.05, "clip_ratio_low": 0.05, "clip_ratio_high": 0.08}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("settings", "name", "mode", "options"),
    [
        (("grpo", {"dual_clip": 3.0}), "vanilla", "token-mean", EQUAL),
        (("grpo", {"dual_clip": 3.0, "clip_high": 0.28}), "vanilla", "token-mean", HIGHER),
        (("dapo", {}), "vanilla", "token-mean", {**EQUAL, "clip_ratio_c": 1e9}),
        (
            ("grpo", {"dual_clip": 3.0, "aggregation": "sequence_mean"}),
            "vanilla",
            "seq-mean-token-mean",
            EQUAL,
        ),
        (("gspo", {}), "gspo", "seq-mean-token-mean", EQUAL),
        (("gspo", {"clip_low": 0.05, "clip_high": 0.08}), "gspo", "seq-mean-token-mean", NARROW),
        (("cispo", {}), "cispo", "token-mean", EQUAL),
    ],
)
def test_loss_and_gradient_are_verls(
    settings: tuple[LossName, dict[str, Any]],
    name: str,
    mode: str,
    options: dict[str, Any],
    weighted: bool,
    seed: int,
) -> None:
    drawn = draw(seed)
    loss, gradient = ours(drawn, settings_of(settings[0], **settings[1], tis_cap=CAP if weighted else None))
    expected, slope = theirs(drawn, name, mode, weighted, **options)
    assert loss == pytest.approx(expected, rel=1e-6)
    torch.testing.assert_close(gradient, slope, rtol=1e-6, atol=1e-9)
    assert gradient[drawn.mask].abs().max() > 1e-3


@pytest.mark.parametrize("kind", ["k1", "k2", "k3"])
def test_kl_estimates_are_verls(kind: Any) -> None:
    """Up to 10, at which verl cuts k3."""
    drawn = draw(0)
    got = kl_estimate(drawn.policy, drawn.reference, kind).clamp(max=10)
    torch.testing.assert_close(got, verl.kl_penalty_forward(drawn.policy, drawn.reference, kind))


@pytest.mark.parametrize("seed", range(3))
def test_advantages_are_verls(seed: int) -> None:
    """GRPO with and without the spread, and leave-one-out, over three groups of a random size."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(3, 7, 3)
    scores = [rng.random(size) for size in sizes]
    index = np.repeat(np.arange(3), sizes)
    tokens = torch.tensor(np.concatenate(scores))[:, None]
    mask = torch.ones_like(tokens)
    expected = {
        ("std", False): verl.compute_grpo_outcome_advantage(tokens, mask, index, epsilon=1e-6)[0],
        ("none", False): verl.compute_grpo_outcome_advantage(
            tokens, mask, index, norm_adv_by_std_in_grpo=False
        )[0],
        ("none", True): verl.compute_rloo_outcome_advantage(tokens, mask, index)[0],
    }
    for (scale, alone), values in expected.items():
        got = [
            advantages(group.tolist(), scale=scale, leave_one_out=alone, eps=1e-6).values  # type: ignore[arg-type]
            for group in scores
        ]
        np.testing.assert_allclose(np.concatenate(got), values[:, 0].numpy(), rtol=1e-5, atol=1e-6)

"""Our losses and TRL's own `GRPOTrainer._compute_loss` on the same random tensors: value and gradient.

Skipped where TRL is not installed; written against 1.16.0.
"""

from collections import defaultdict
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from drawn_tokens import CAP, ROWS, WIDTH, Drawn, draw, ours, settings_of
from torch import Tensor

from strop.config.losses import LossName

pytest.importorskip("trl", reason="compares with TRL, which is not installed here (pip install trl)")
pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.filterwarnings("default")]


def theirs(drawn: Drawn, **options: Any) -> tuple[float, Tensor]:
    """TRL's loss and its gradient by the log-probs, [ROWS, WIDTH]."""
    from trl import GRPOTrainer

    policy = drawn.policy.clone().requires_grad_()
    ids = torch.zeros(ROWS, WIDTH, dtype=torch.int64)
    trainer = object.__new__(GRPOTrainer)
    given: Mapping[str, Any] = {
        "epsilon_low": 0.2,
        "epsilon_high": 0.2,
        "beta": 0.0,
        "loss_type": "dapo",
        "importance_sampling_level": "token",
        "use_vllm": False,
        "delta": None,
    } | options
    arguments = SimpleNamespace(delta=given["delta"], use_bias_correction_kl=False, steps_per_generation=1)
    trainer.__dict__.update(
        {
            **given,
            "args": arguments,
            "aux_loss_enabled": False,
            "top_entropy_quantile": 1.0,
            "off_policy_mask_threshold": None,
            "vllm_importance_sampling_correction": True,
            "max_completion_length": WIDTH,
            "current_gradient_accumulation_steps": 1,
            "_entropy_bonus_enabled": False,
            "_metrics": {"train": defaultdict(list)},
            "model": SimpleNamespace(training=True),
            "accelerator": SimpleNamespace(
                num_processes=1, gather=lambda x: x, reduce=lambda x, reduction: x
            ),
            "_get_per_token_logps_and_entropies": lambda *_, **__: (policy, torch.zeros_like(policy), None),
        }
    )
    inputs = {
        "prompt_ids": ids[:, :1],
        "prompt_mask": torch.ones(ROWS, 1),
        "completion_ids": ids,
        "completion_mask": torch.ones(ROWS, WIDTH),
        "tool_mask": drawn.mask.double(),
        "advantages": drawn.advantages,
        "old_per_token_logps": drawn.old,
        "ref_per_token_logps": drawn.reference,
        "num_items_in_batch": drawn.mask.sum(),
        "importance_sampling_ratio": drawn.weights(),
    }
    loss = trainer._compute_loss(None, inputs)
    (gradient,) = torch.autograd.grad(loss, policy)
    return float(loss.detach()), gradient


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("beta", [0.0, 0.1])
@pytest.mark.parametrize(
    ("settings", "options"),
    [
        (("dapo", {"clip_high": 0.28}), {"loss_type": "dapo", "epsilon_high": 0.28}),
        (("grpo", {"dual_clip": 3.0}), {"loss_type": "bnpo", "delta": 3.0}),
        (("grpo", {"aggregation": "sequence_mean"}), {"loss_type": "grpo"}),
        (("dr_grpo", {}), {"loss_type": "dr_grpo"}),
        (("cispo", {"clip_low": 1.0, "clip_high": 4.0}), {"loss_type": "cispo", "epsilon_high": 5.0}),
        (("cispo", {"clip_low": 1.0, "clip_high": 0.2}), {"loss_type": "cispo", "epsilon_high": 1.2}),
        (("gspo", {}), {"loss_type": "grpo", "importance_sampling_level": "sequence"}),
        (
            ("gspo", {"clip_low": 0.05, "clip_high": 0.08}),
            {
                "loss_type": "grpo",
                "importance_sampling_level": "sequence",
                "epsilon_low": 0.05,
                "epsilon_high": 0.08,
            },
        ),
        (("dapo", {"tis_cap": CAP}), {"loss_type": "dapo", "use_vllm": True}),
        (
            ("cispo", {"clip_low": 1.0, "clip_high": 4.0, "tis_cap": CAP}),
            {"loss_type": "cispo", "epsilon_high": 5.0, "use_vllm": True},
        ),
    ],
)
def test_loss_and_gradient_are_trls(
    settings: tuple[LossName, dict[str, Any]], options: dict[str, Any], beta: float, seed: int
) -> None:
    drawn = draw(seed)
    name, changes = settings
    loss, gradient = ours(drawn, settings_of(name, **changes, kl_coef=beta, kl="k3"))
    expected, slope = theirs(drawn, **options, beta=beta)
    assert loss == pytest.approx(expected, rel=1e-10)
    torch.testing.assert_close(gradient, slope, rtol=1e-10, atol=1e-12)
    assert gradient[~drawn.mask].abs().max() == 0
    assert gradient[drawn.mask].abs().max() > 1e-3

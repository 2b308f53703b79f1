"""The losses by name against numbers measured on peers' code (TRL, verl), values and gradients."""

from collections.abc import Sequence
from typing import Any, get_args

import pytest
import torch
from torch import Tensor

from local_model import make_row
from strop.config.losses import LOSSES, Aggregation, LossName
from strop.engines.local.losses.aggregation import shares
from strop.engines.local.losses.surrogates import SURROGATES
from strop.engines.local.losses.token_loss import token_loss
from strop.engines.local.losses.tokens import LossSettings, Tokens

pytestmark = pytest.mark.usefixtures("one_thread")

# Two rows of 4 and 3 sampled tokens; a masked fourth of the second has ratio 123 and is not among them.
OLD = torch.tensor([-1.0, -1, -1, -1, -1, -1, -3], dtype=torch.float64)
RATIO = torch.tensor([0.5, 1, 1.5, 1.1, 0.7, 1.25, 10], dtype=torch.float64)
ADVANTAGE = torch.tensor([1.0] * 4 + [-1.0] * 3, dtype=torch.float64)
LENGTHS = [4, 3]
ROWS = [
    make_row([9] * 5, [0, 1, 1, 1, 1], name="first"),
    make_row([9] * 5, [0, 1, 1, 1, 0], name="second"),
]
EPSILON = {"clip_low": 0.2, "clip_high": 0.2}


def named(name: LossName, **changes: Any) -> LossSettings:
    """What a run file with this loss and these keys comes to, without the importance weight."""
    keys = {**LOSSES[name].settings(), **changes}
    dual = keys.pop("dual_clip")
    keys.pop("scale")
    return LossSettings(
        surrogate=LOSSES[name].surrogate,
        dual_clip=None if dual == "off" else dual,
        tis_cap=None,
        length=4,
        **keys,
    )


def outcome(settings: LossSettings, reference: Tensor | None = None) -> tuple[float, list[float]]:
    """The aggregated loss of the two rows, and its gradient by their tokens' log-probs."""
    policy = (OLD + RATIO.log()).requires_grad_()
    tokens = Tokens(policy, OLD, OLD, reference, ADVANTAGE, LENGTHS)
    share = shares(ROWS, settings)
    weights = torch.tensor(share.weights, dtype=torch.float64).repeat_interleave(torch.tensor(LENGTHS))
    loss = (token_loss(tokens, settings).loss * weights).sum() / share.divisor
    (gradient,) = torch.autograd.grad(loss, policy)
    return float(loss.detach()), gradient.tolist()


BY_TOKEN = [-0.071429, -0.142857, 0, -0.157143]
BY_SEQUENCE = [-0.0625, -0.125, 0, -0.1375]


@pytest.mark.parametrize(
    ("settings", "loss", "gradient"),
    [
        # TRL's dapo and bnpo, verl's token-mean with c = 1e9
        (named("dapo", **EPSILON), 1.178571, [*BY_TOKEN, 0, 0.178571, 1.428571]),
        # verl's default c = 3, TRL's delta = 3
        (named("grpo", **EPSILON), 0.178571, [*BY_TOKEN, 0, 0.178571, 0]),
        (named("dapo"), 1.167143, [*BY_TOKEN, 0, 0.178571, 1.428571]),
        # TRL's grpo, which is the paper's
        (
            named("grpo", **EPSILON, dual_clip="off", aggregation="sequence_mean"),
            1.533333,
            [*BY_SEQUENCE, 0, 0.208333, 1.666667],
        ),
        # verl's seq-mean-token-mean, c = 3
        (
            named("grpo", **EPSILON, aggregation="sequence_mean"),
            0.366667,
            [*BY_SEQUENCE, 0, 0.208333, 0],
        ),
        # TRL's dr_grpo: over 2 sequences and 4 tokens
        (named("dr_grpo"), 1.03125, [*BY_SEQUENCE, 0, 0.15625, 1.25]),
        # TRL's and verl's gspo
        (named("gspo", **EPSILON), 0.553799, [-0.119131] * 4 + [0.34344] * 3),
        # TRL's cispo with epsilon_high 5, and 1.2; verl's between 0.8 and 1.2
        (
            named("cispo"),
            -0.239183,
            [-0.071429, -0.142857, -0.214286, -0.157143, 0.1, 0.178571, 0.714286],
        ),
        (
            named("cispo", clip_high=0.2),
            0.119482,
            [-0.071429, -0.142857, -0.171429, -0.157143, 0.1, 0.171429, 0.171429],
        ),
        (
            named("cispo", **EPSILON),
            0.172665,
            [-0.114286, -0.142857, -0.171429, -0.157143, 0.114286, 0.171429, 0.171429],
        ),
    ],
)
def test_peers_numbers(settings: LossSettings, loss: float, gradient: Sequence[float]) -> None:
    got, slope = outcome(settings)
    assert got == pytest.approx(loss, abs=1e-6)
    assert slope == pytest.approx(list(gradient), abs=1e-6)


def test_peers_numbers_with_kl() -> None:
    """TRL's dapo with beta 0.1, the reference being the old policy."""
    got, slope = outcome(named("dapo", **EPSILON, kl_coef=0.1), reference=OLD)
    assert got == pytest.approx(1.205443, abs=1e-6)
    expected = [-0.085714, -0.142857, 0.004762, -0.155844, -0.006122, 0.181429, 1.441429]
    assert slope == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("aggregation", "expected"),
    [("token_mean", 6 / 5), ("sequence_mean", 1.5), ("constant_length", 6 / 4 / 2)],
)
def test_t38_aggregations_by_hand(aggregation: Aggregation, expected: float) -> None:
    """Token losses 1, 1, 1, 1 and 2: 6 over 5 tokens; (1 + 2) / 2; 6 over 4 tokens and 2 sequences."""
    rows = [make_row([9] * 5, [0, 1, 1, 1, 1], name="a"), make_row([9, 9], [0, 1], name="b")]
    share = shares(rows, LossSettings(aggregation=aggregation, length=4))
    assert (4 * share.weights[0] * 1 + share.weights[1] * 2) / share.divisor == pytest.approx(expected)


@pytest.mark.parametrize("aggregation", get_args(Aggregation))
def test_t39_rows_without_a_sampled_token_weigh_nothing(aggregation: Aggregation) -> None:
    """A peer's token mean is nan where all is masked."""
    settings = LossSettings(aggregation=aggregation)
    silent = make_row([9, 9], [0, 0], name="silent")
    assert shares([silent], settings).divisor == 0.0
    assert shares([*ROWS, silent], settings).divisor == shares(ROWS, settings).divisor


@pytest.mark.parametrize("aggregation", ["sequence_mean", "constant_length"])
def test_a_forked_trajectory_is_one_sequence(aggregation: Aggregation) -> None:
    """Its two rows of 1 and 3 tokens weigh as one row of 4 would."""
    settings = LossSettings(aggregation=aggregation)
    forked = [
        make_row([9, 9], [0, 1], name="a"),
        make_row([8, 9, 9, 9], [0, 1, 1, 1], name="a"),
        make_row([9, 9, 9], [0, 1, 1], name="b"),
    ]
    whole = [make_row([9] * 5, [0, 1, 1, 1, 1], name="a"), forked[2]]
    parts, one = shares(forked, settings), shares(whole, settings)
    assert parts.divisor == one.divisor == 2.0
    assert parts.weights[0] == parts.weights[1] == one.weights[0]
    assert parts.weights[2] == one.weights[1]


def test_every_name_has_a_surrogate() -> None:
    assert set(LOSSES) == set(get_args(LossName))
    assert {loss.surrogate for loss in LOSSES.values()} == set(SURROGATES)

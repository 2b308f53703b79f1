"""The learner: invariance, reference, KL, and what it does with gradients it cannot use."""

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from local_model import SIZES, make_row, transformers_logits
from strop.config.losses import LOSSES, LossName
from strop.engine import Adapter
from strop.engines.local.learner import Learner, LearnerSettings
from strop.engines.local.learning_rate import Schedule
from strop.engines.local.losses.tokens import LossSettings
from strop.engines.local.weights import LoraShape, adapted, adapter_tensors
from strop.errors import EngineError, InputError
from strop.trajectory.tokens import Row

pytestmark = pytest.mark.usefixtures("one_thread")

STEM = [5, 9, 2, 7, 7, 1]
ROWS = [
    make_row([*STEM, 3, 4, 8, 6, 11], [0] * 6 + [1, 1, 0, 1, 1], name="a"),
    make_row([*STEM, 3, 5, 9], [0] * 6 + [1, 1, 1], name="b"),
    make_row([20, 21, 22, 23], [0, 1, 1, 1], name="c"),
]
ADVANTAGES = [1.0, -0.5, 0.8]
SILENT = make_row([8, 8, 8], [0, 0, 0])


def learner(seed: int = 0, **settings: Any) -> Learner:
    torch.manual_seed(seed)
    base = LlamaForCausalLM(LlamaConfig(**SIZES)).eval().requires_grad_(False)
    return Learner(adapted(base, LoraShape(rank=4), None, seed), LearnerSettings(**settings))


def weights(own: Learner, adapter: str = "policy") -> torch.Tensor:
    return torch.cat([t.detach().flatten() for t in adapter_tensors(own.model, adapter).values()]).clone()


def gradient(own: Learner) -> torch.Tensor:
    return torch.cat([p.grad.flatten() for p in own.parameters if p.grad is not None]).clone()


def values(own: Learner, adapter: Adapter, rows: Sequence[Row] = ROWS) -> np.ndarray[Any, Any]:
    return np.concatenate([scored.logprobs for scored in own.score(rows, adapter)])


def sampled_now(own: Learner, rows: Sequence[Row] = ROWS) -> list[Row]:
    """The rows with the log-probs of a sampler that is the policy."""
    return [
        make_row(
            row.ids.tolist(), row.mask.tolist(), logprobs=scored.logprobs.tolist(), name=row.trajectory_id
        )
        for row, scored in zip(rows, own.score(rows, "policy"), strict=True)
    ]


def train(own: Learner, steps: int = 1) -> None:
    for _ in range(steps):
        own.accumulate(sampled_now(own), ADVANTAGES)
        own.step()


LOSS_OF = {
    name: LossSettings(surrogate=loss.surrogate, aggregation=loss.aggregation, clip_high=0.28, length=16)
    for name, loss in LOSSES.items()
}


@pytest.mark.parametrize("name", LOSSES)
def test_t37_the_update_does_not_depend_on_packs_or_calls(name: LossName) -> None:
    """One pack, a pack a row, a call a row: rows of 4, 3 and 3 tokens, so a mean of means would differ.

    The rows are of an old policy, so that ratios, of tokens or of sequences, are not 1.
    """
    whole = [[0, 1, 2]]
    moved = []
    for max_tokens, calls in ((1000, whole), (5, whole), (1000, [[0], [1], [2]]), (7, [[2, 0], [1]])):
        own = learner(micro_batch_tokens=max_tokens, learning_rate=1e-2, loss=LOSS_OF[name])
        rows = sampled_now(own)
        own.accumulate(rows, ADVANTAGES)
        own.step()
        losses = [own.accumulate([rows[i] for i in c], [ADVANTAGES[i] for i in c])["loss"] for c in calls]
        before = gradient(own)
        norm = own.step()["grad_norm"]
        moved.append((norm, before, weights(own), losses))
    for norm, _, now, _ in moved[1:]:
        assert norm == pytest.approx(moved[0][0], rel=1e-4)
        torch.testing.assert_close(now, moved[0][2], rtol=1e-3, atol=2e-5)
    assert moved[1][3] == pytest.approx(moved[0][3], rel=1e-4)


def test_t10_a_reply_of_one_token_is_trained() -> None:
    """A lone end of turn; d loss / d log-prob of it is minus its advantage, on policy."""
    own = learner(max_grad_norm=1e9)
    row = make_row([*STEM, 2], [0] * 6 + [1])
    own.accumulate(sampled_now(own, [row]), [0.7])
    got = gradient(own)
    fresh = learner()
    logp = torch.log_softmax(transformers_logits(fresh.model, row.ids.tolist()), -1)[5, 2]
    (-0.7 * logp).backward()
    assert got.abs().max() > 1e-4
    torch.testing.assert_close(got, gradient(fresh), rtol=1e-3, atol=1e-6)


def off_policy_rows(own: Learner) -> list[Row]:
    """Rows of a sampler that the policy has moved away from, each token by its own distance."""
    rng = np.random.default_rng(0)
    return [
        make_row(
            row.ids.tolist(),
            row.mask.tolist(),
            logprobs=(scored.logprobs + rng.normal(0, 0.3, len(scored.logprobs)) - 1e-3).tolist(),
            name=row.trajectory_id,
        )
        for row, scored in zip(ROWS, own.score(ROWS, "policy"), strict=True)
    ]


@pytest.mark.parametrize("max_tokens", [1000, 5])
def test_t37_gspo_is_the_plain_formula_on_whole_rows(max_tokens: int) -> None:
    """-mean over rows of min(s A, clip(s) A), s = exp(mean log-ratio), by autograd through transformers.

    Written as the paper's objective of sequences, not as the one of tokens; rows share a prefix.
    """
    own = learner(micro_batch_tokens=max_tokens, max_grad_norm=1e9, loss=LOSS_OF["gspo"])
    own.on_policy = False
    rows = off_policy_rows(own)
    own.accumulate(rows, ADVANTAGES)
    got = gradient(own) / 3
    fresh = learner()
    total = torch.zeros(())
    for row, advantage in zip(rows, ADVANTAGES, strict=True):
        logp = torch.log_softmax(transformers_logits(fresh.model, row.ids.tolist()), -1)
        where = np.flatnonzero(row.mask)
        old = torch.tensor(row.logprobs[where], dtype=torch.float32)
        ratio = (logp[where - 1, row.ids[where]] - old).mean().exp()
        total = total - torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.28) * advantage) / 3
    total.backward()
    torch.testing.assert_close(got, gradient(fresh), rtol=1e-3, atol=1e-5)
    assert float(got.norm()) > 1e-3


def test_x28_nothing_random_is_left_in_the_forward_pass() -> None:
    """Dropout in the adapter would make the ratio to the policy itself differ from 1."""
    own = learner()
    assert own.accumulate(sampled_now(own), ADVANTAGES)["mismatch"] < 1e-6


def test_the_learning_rate_follows_its_schedule_and_goes_on_after_a_resume() -> None:
    """Warm-up of 2, then half a cosine over the 3 updates left: 1/2, 1, 1, 3/4, 1/4 of the rate."""
    schedule = Schedule(shape="cosine", warmup=2, updates=5)
    own, resumed = (learner(learning_rate=1e-2, schedule=schedule) for _ in range(2))
    rates = []
    for update in range(5):
        if update == 3:
            resumed.optimizer.load_state_dict(copy.deepcopy(own.optimizer.state_dict()))
        train(own)
        rates.append(own.optimizer.param_groups[0]["lr"])
    assert rates == pytest.approx([5e-3, 1e-2, 1e-2, 7.5e-3, 2.5e-3])
    assert resumed.updates == 3
    train(resumed)
    assert resumed.optimizer.param_groups[0]["lr"] == pytest.approx(7.5e-3)


def test_an_update_that_moves_nothing_uses_up_no_learning_rate() -> None:
    own = learner(schedule=Schedule(shape="linear", updates=4))
    for advantage, updates in ((0.0, 0), (1.0, 1), (0.0, 1)):
        own.accumulate(sampled_now(own), [advantage] * 3)
        own.step()
        assert own.updates == updates


def test_the_gradient_is_of_the_mean_over_all_tokens() -> None:
    """Against the plain formula: -sum(A log π) / 10 by autograd through transformers' own forward."""
    own = learner(max_grad_norm=1e9)
    own.accumulate(sampled_now(own), ADVANTAGES)
    norm = own.step()["grad_norm"]
    fresh = learner()
    total = torch.zeros(())
    for row, advantage in zip(ROWS, ADVANTAGES, strict=True):
        logp = torch.log_softmax(transformers_logits(fresh.model, row.ids.tolist()), -1)
        where = np.flatnonzero(row.mask)
        total = total - advantage * logp[where - 1, row.ids[where]].sum() / 10
    total.backward()
    assert norm == pytest.approx(float(gradient(fresh).norm()), rel=1e-4)


def test_metrics_are_means_over_tokens() -> None:
    """The sampler is 0.1 nats below the policy in one row of 4 tokens and equal in the other of 3."""
    own = learner()
    first, second = sampled_now(own, ROWS[:2])
    shifted = make_row(
        first.ids.tolist(), first.mask.tolist(), logprobs=(first.logprobs[first.mask] - 0.1).tolist()
    )
    got = own.accumulate([shifted, second, SILENT], [1.0, -2.0, 9.0])
    ratio = (4 * np.exp(0.1) + 3) / 7
    assert got == pytest.approx(
        {
            "tokens": 7.0,
            "ratio": ratio,
            "mismatch": 0.4 / 7,
            "clip_share": 0.0,
            "entropy": np.concatenate([s.entropy for s in own.score(ROWS[:2], "policy")]).mean(),
            # on policy the surrogate is A, weighted by exp(old - sampler)
            "loss": (-4 * np.exp(0.1) + 2 * 3) / 7,
        },
        rel=1e-4,
    )
    assert list(got)[-1] == "loss"


def test_supervised_metrics_are_the_cross_entropy() -> None:
    own = learner()
    got = own.accumulate(ROWS, [1.0] * 3, "supervised")
    assert got == {"tokens": 10.0, "loss": pytest.approx(-values(own, "policy").mean(), rel=1e-5)}


def test_advantage_zero_and_masked_rows_move_nothing_even_with_momentum() -> None:
    own = learner(weight_decay=0.1, learning_rate=1e-2)
    train(own, 2)
    before = weights(own)
    metrics = own.accumulate([*sampled_now(own), SILENT], [0.0, 0.0, 0.0, 7.0])
    assert own.step()["grad_norm"] == 0.0
    assert metrics["loss"] == 0.0
    torch.testing.assert_close(weights(own), before, rtol=0, atol=0)


def test_t39_a_step_without_a_token_is_an_error() -> None:
    own = learner()
    assert own.accumulate([SILENT, make_row([], [])], [1.0, 1.0]) == {"tokens": 0.0}
    with pytest.raises(EngineError, match="no token was accumulated"):
        own.step()


def test_a_row_without_a_sampled_token_has_nothing_to_score() -> None:
    own = learner()
    first, silent, last = own.score([ROWS[0], SILENT, ROWS[2]], "policy")
    assert silent.logprobs.shape == silent.entropy.shape == (0,)
    np.testing.assert_allclose(
        [*first.logprobs, *last.logprobs], values(own, "policy", [ROWS[0], ROWS[2]]), atol=1e-6
    )


def test_the_reference_is_the_start_bit_for_bit_and_stays_it() -> None:
    own = learner(learning_rate=1e-2)
    start, tensors = values(own, "policy"), weights(own, "reference")
    np.testing.assert_array_equal(start, values(own, "reference"))
    train(own, 3)
    np.testing.assert_array_equal(values(own, "reference"), start)
    torch.testing.assert_close(weights(own, "reference"), tensors, rtol=0, atol=0)
    assert np.abs(values(own, "policy") - start).max() > 1e-3


def test_scoring_between_accumulate_and_step_changes_nothing() -> None:
    quiet, busy = learner(), learner()
    rows = sampled_now(quiet)
    for own in (quiet, busy):
        own.accumulate(rows, ADVANTAGES)
    before = gradient(busy)
    busy.score(rows, "reference")
    busy.score(rows, "policy")
    torch.testing.assert_close(gradient(busy), before, rtol=0, atol=0)
    quiet.step()
    busy.step()
    torch.testing.assert_close(weights(busy), weights(quiet), rtol=0, atol=0)


@pytest.mark.parametrize("max_tokens", [8, 64])
def test_what_accumulate_read_is_what_is_scored_before_the_step(max_tokens: int) -> None:
    own = learner(micro_batch_tokens=max_tokens)
    train(own)
    rows = [*sampled_now(own), SILENT]
    expected = [scored.logprobs for scored in own.score(rows, "policy")]
    own.accumulate(rows, [*ADVANTAGES, 1.0])
    for read, scored in zip(own.found, expected, strict=True):
        np.testing.assert_allclose(read, scored, atol=1e-5)
    own.step()
    assert max(np.abs(a - b).max() for a, b in zip(own.found[:3], expected[:3], strict=True)) < 1e-5


def test_what_is_held_is_what_is_scored_and_whole_distributions() -> None:
    own = learner()
    train(own)
    hot = make_row(ROWS[2].ids.tolist(), ROWS[2].mask.tolist(), temperature=0.6)
    rows = [*ROWS, SILENT, hot]
    held = own.hold(rows)
    for read, scored in zip(held.logprobs, own.score(rows, "policy"), strict=True):
        np.testing.assert_allclose(read, scored.logprobs, atol=1e-5)
    for number, row in enumerate(rows):
        for nth, place in enumerate(np.flatnonzero(row.mask)):
            logits = transformers_logits(own.model, row.ids[:place].tolist())[-1].detach() / row.temperature
            expected = torch.log_softmax(logits, -1).numpy()
            np.testing.assert_allclose(held.distribution(number, nth), expected, atol=1e-4)


def test_only_the_policy_trains() -> None:
    own = learner()
    own.score(ROWS, "reference")
    trainable = {name for name, p in own.model.named_parameters() if p.requires_grad}
    assert trainable
    assert all(".policy." in name for name in trainable)
    train(own)
    assert all(p.grad is None for name, p in own.model.named_parameters() if ".policy." not in name)


def test_an_adapter_without_trainable_parameters_is_an_error() -> None:
    """A frozen adapter trains to a byte-identical one while all metrics look alive."""
    model = learner().model
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    with pytest.raises(EngineError, match="no trainable parameter"):
        Learner(model, LearnerSettings())


@pytest.mark.parametrize("kl", ["k1", "k2", "k3"])
def test_kl_to_the_reference_is_reported_and_zero_at_the_start(kl: Any) -> None:
    own = learner(loss=LossSettings(kl_coef=0.1, kl=kl))
    assert own.accumulate(sampled_now(own), ADVANTAGES)["kl"] == pytest.approx(0.0, abs=1e-6)
    own.step()
    assert "kl" not in learner().accumulate(ROWS, ADVANTAGES)


def test_kl_pulls_back_to_the_reference() -> None:
    """Without advantages the k2 term alone brings the policy's log-probs back."""
    own = learner(learning_rate=5e-3, loss=LossSettings(kl_coef=1.0, kl="k2"))
    start = values(own, "reference")
    for _ in range(6):
        own.accumulate(ROWS, [3.0, -3.0, 3.0], "supervised")
        own.step()
    away = np.abs(values(own, "policy") - start).mean()
    for _ in range(25):
        own.accumulate(sampled_now(own), [0.0] * 3)
        own.step()
    assert np.abs(values(own, "policy") - start).mean() < 0.3 * away
    assert away > 0.1


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_gradient_that_is_not_finite_is_refused_and_changes_nothing(bad: float) -> None:
    own, twin = learner(learning_rate=1e-2), learner(learning_rate=1e-2)
    for each in (own, twin):
        train(each)
    own.accumulate(sampled_now(own), [bad, 1.0, 1.0])
    with pytest.raises(EngineError, match="not finite"):
        own.step()
    torch.testing.assert_close(weights(own), weights(twin), rtol=0, atol=0)
    for each in (own, twin):
        train(each)
    torch.testing.assert_close(weights(own), weights(twin), rtol=0, atol=0)


def test_the_gradient_norm_is_bounded_and_reported_unbounded() -> None:
    free, bound = learner(max_grad_norm=1e9), learner(max_grad_norm=1e-3)
    for own in (free, bound):
        own.optimizer = torch.optim.SGD(own.parameters, lr=1.0)  # type: ignore[assignment]
    start, norms = weights(free), []
    for own in (free, bound):
        own.accumulate(sampled_now(own), ADVANTAGES)
        norms.append(own.step()["grad_norm"])
    assert norms[0] == pytest.approx(norms[1], rel=1e-5)
    assert float((weights(free) - start).norm()) == pytest.approx(norms[0], rel=1e-4)
    assert float((weights(bound) - start).norm()) == pytest.approx(1e-3, rel=1e-2)


def test_once_the_policy_moved_on_the_sampler_is_the_old_policy() -> None:
    """The same rows again after a step: tokens whose ratio left the bounds are clipped, as PPO's."""
    own = learner(learning_rate=5e-2)
    rows = sampled_now(own)
    first = own.accumulate(rows, ADVANTAGES)
    own.step()
    again = own.accumulate(rows, ADVANTAGES)
    assert first["ratio"] == pytest.approx(1.0, abs=1e-5)
    assert (first["clip_share"], own.on_policy) == (0.0, False)
    ratio = np.exp(values(own, "policy") - np.concatenate([r.logprobs[r.mask] for r in rows]))
    advantage = np.repeat(ADVANTAGES, [4, 3, 3])
    surrogate = np.minimum(ratio * advantage, np.clip(ratio, 0.8, 1.28) * advantage)
    surrogate = np.where(advantage < 0, np.maximum(surrogate, 3 * advantage), surrogate)
    assert again["loss"] == pytest.approx(-surrogate.mean(), rel=1e-3)
    assert again["clip_share"] == pytest.approx((ratio * advantage != surrogate).mean())
    assert again["clip_share"] > 0


def test_t16_temperature_divides_logits() -> None:
    """Log-probs of softmax(logits / T), which is not log-probs divided by T; 0 reads as 1."""
    own = learner()
    ids, mask = ROWS[1].ids.tolist(), ROWS[1].mask.tolist()
    logits = transformers_logits(own.model, ids).detach()
    where = np.flatnonzero(mask)
    for temperature in (0.5, 2.0, 0.0):
        expected = torch.log_softmax(logits / (temperature or 1.0), -1)[where - 1, np.array(ids)[where]]
        got = values(own, "policy", [make_row(ids, mask, temperature=temperature)])
        np.testing.assert_allclose(got, expected, atol=1e-5)


def test_over_a_bfloat16_base_it_says_much_the_same() -> None:
    """What "auto" takes on newer processors: the same start under both adapters, and a step that counts."""
    torch.manual_seed(0)
    base = LlamaForCausalLM(LlamaConfig(**SIZES)).eval().requires_grad_(False).to(torch.bfloat16)
    own = Learner(adapted(base, LoraShape(rank=4), None, 0), LearnerSettings(learning_rate=1e-2))
    start = values(own, "policy")
    np.testing.assert_array_equal(start, values(own, "reference"))
    np.testing.assert_allclose(start, values(learner(), "policy"), atol=0.05)
    assert own.accumulate(sampled_now(own), ADVANTAGES)["mismatch"] < 0.05
    assert own.step()["grad_norm"] > 0
    assert np.abs(values(own, "policy") - start).max() > 1e-3


def test_ids_outside_the_vocabulary_are_named() -> None:
    row = make_row([1, 64], [0, 1], name="attempt 7")
    with pytest.raises(InputError, match="attempt 7: token ids from 1 to 64, the model's vocabulary has 64"):
        learner().score([row], "policy")
    with pytest.raises(InputError, match="attempt 7"):
        learner().accumulate([row], [1.0])


def test_the_same_seed_gives_the_same_adapter_and_leaves_torchs_own_randomness_alone() -> None:
    base = LlamaForCausalLM(LlamaConfig(**SIZES)).requires_grad_(False)
    state = torch.get_rng_state()
    first, second, other = (
        Learner(adapted(base, LoraShape(), None, s), LearnerSettings()) for s in (1, 1, 2)
    )
    torch.testing.assert_close(torch.get_rng_state(), state, rtol=0, atol=0)
    torch.testing.assert_close(weights(first), weights(second), rtol=0, atol=0)
    assert (weights(first) != weights(other)).any()

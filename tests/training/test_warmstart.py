"""The loop of a warm start over a real (tabular) engine, and its gradient against torch's own."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from strop.engines.fake import FakeConfig, FakeEngine
from strop.errors import EngineError, InputError
from strop.store import checkpoints
from strop.store.run import Run
from strop.training.lessons import Demonstration
from strop.training.warmstart import WarmstartPlan, best_line, token_losses, updates_in, warm_up
from strop.trajectory.tokens import Row

END = tuple[list[dict[str, Any]], bytes]


def taught(name: str, ids: Sequence[int], mask: Sequence[int], weight: float = 1.0) -> Demonstration:
    chosen = np.array(mask, dtype=np.bool_)
    row = Row(
        trajectory_id=name,
        ids=np.array(ids, dtype=np.int64),
        mask=chosen,
        logprobs=np.zeros(len(ids)),
        turn_of=np.where(chosen, 0, -1).astype(np.int64),
    )
    return Demonstration(trajectory_id=name, scenario_id=name, rows=[row], weights=[weight])


def habit(start: int, count: int, offset: int = 0) -> list[Demonstration]:
    """Sequences in which, after a first token, every token is the one before plus `offset`."""
    made = []
    for number in range(count):
        ids = [1 + (start + number) % 14]
        for _ in range(5):
            ids.append(1 + (ids[-1] - 1 + offset) % 14)
        made.append(taught(f"d{start + number}", ids, [0, 1, 1, 1, 1, 1]))
    return made


def plan_for(folder: Path, *, resume: bool = False, **changes: Any) -> WarmstartPlan:
    plan = WarmstartPlan(
        engine=FakeEngine(FakeConfig(learning_rate=0.3, order=1)),
        run=Run.open(folder) if resume else Run.create(folder, ""),
        learned=habit(0, 20),
        heldout=habit(20, 6),
        epochs=4,
        batch=8,
        resume=resume,
        now=lambda: 0.0,
    )
    return replace(plan, **changes)


def ends_with(folder: Path) -> END:
    run = Run.view(folder)
    found = checkpoints.best(run)
    assert found is not None
    return run.steps(), (found.path / "adapter.npy").read_bytes()


def test_updates_count_the_short_batch_at_the_end_of_an_epoch() -> None:
    assert updates_in(20, 8, 4) == 12
    assert updates_in(16, 8, 1) == 2
    assert updates_in(1, 8, 3) == 3


def test_held_out_loss_falls_and_is_measured_before_and_after_each_epoch(tmp_path: Path) -> None:
    lines = warm_up(plan_for(tmp_path / "run"))
    assert [(line["step"], line["updates"], line["epoch"]) for line in lines] == [
        (0, 0, 0.0), (1, 3, 1.0), (2, 6, 2.0), (3, 9, 3.0), (4, 12, 4.0),
    ]  # fmt: skip
    losses = [line["heldout_loss"]["estimate"] for line in lines]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < losses[0] / 2
    first = lines[0]["heldout_loss"]
    assert first["low"] < first["estimate"] < first["high"]
    assert (first["n"], first["clusters"]) == (30, 6)
    assert [line["tokens"] for line in lines] == [0, 100, 100, 100, 100]
    assert lines[0]["loss"] is None


def test_every_demonstration_is_seen_once_an_epoch(tmp_path: Path) -> None:
    plan = plan_for(tmp_path / "run", epochs=2)
    seen: list[str] = []
    accumulate = plan.engine.accumulate
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            plan.engine,
            "accumulate",
            lambda rows, *rest: seen.extend(row.trajectory_id for row in rows) or accumulate(rows, *rest),
        )
        warm_up(plan)
    names = sorted(each.trajectory_id for each in plan.learned)
    assert sorted(seen[:20]) == sorted(seen[20:]) == names
    assert seen[:20] != seen[20:]


def test_it_ends_early_and_keeps_the_best(tmp_path: Path) -> None:
    """Held-out sequences rise by one where the learned ones repeat: every update makes their loss worse."""
    plan = plan_for(tmp_path / "run", heldout=habit(0, 6, offset=1), epochs=20, patience=3)
    lines = warm_up(plan)
    assert [line["step"] for line in lines] == [0, 1, 2, 3]
    assert best_line(lines)["step"] == 1
    found = checkpoints.best(plan.run)
    assert found is not None
    assert found.step == 1
    assert (
        warm_up(plan_for(tmp_path / "run", resume=True, heldout=plan.heldout, epochs=20, patience=3)) == lines
    )


def test_patience_0_goes_on_to_the_end(tmp_path: Path) -> None:
    lines = warm_up(plan_for(tmp_path / "run", heldout=habit(0, 6, offset=1), epochs=5))
    assert lines[-1]["updates"] == 15


def test_without_held_out_scenarios_the_last_is_kept(tmp_path: Path) -> None:
    plan = plan_for(tmp_path / "run", heldout=[], patience=1)
    lines = warm_up(plan)
    assert [line["heldout_loss"] for line in lines] == [None] * 5
    found = checkpoints.best(plan.run)
    assert found is not None
    assert found.step == 4


def test_measurements_may_come_within_an_epoch(tmp_path: Path) -> None:
    lines = warm_up(plan_for(tmp_path / "run", epochs=2, every=4))
    assert [line["updates"] for line in lines] == [0, 4, 6]


def test_the_held_out_loss_is_the_weighted_mean_over_learned_tokens() -> None:
    """Two tokens of weight 1 and one of weight 3, by the engine's own log-probs."""
    engine = FakeEngine(FakeConfig(order=1))
    two = [taught("a", [1, 2, 3], [0, 1, 1]), taught("b", [4, 5], [0, 1], weight=3.0)]
    logprobs = [each.rows[0] for each in two]
    first, second = engine.logprobs(logprobs, "policy")
    assert token_losses(engine, two).tolist() == [[-float(first.sum()), 2.0], [-3 * float(second[0]), 3.0]]


class Killed(BaseException):
    """Stands for kill -9."""


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("when", [0, 2])
@pytest.mark.parametrize("boundary", ["accumulate", "step", "save", "append_step", "prune", "logprobs"])
def test_killed_anywhere_it_resumes_to_the_same_end(
    tmp_path: Path, boundary: str, when: int, after: bool
) -> None:
    warm_up(plan_for(tmp_path / "whole"))
    plan = plan_for(tmp_path / "broken")
    owner: Any = {"append_step": plan.run, "prune": checkpoints}.get(boundary, plan.engine)
    real, left = getattr(owner, boundary), [when]

    def called(*args: Any, **kwargs: Any) -> Any:
        left[0] -= 1
        if left[0] < 0 and not after:
            raise Killed
        result = real(*args, **kwargs)
        if left[0] < 0:
            raise Killed
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, boundary, called)
        with pytest.raises(Killed):
            warm_up(plan)
    warm_up(plan_for(tmp_path / "broken", resume=True))
    assert ends_with(tmp_path / "broken") == ends_with(tmp_path / "whole")


def test_a_used_folder_is_refused_without_resume(tmp_path: Path) -> None:
    plan = plan_for(tmp_path / "run", epochs=1)
    warm_up(plan)
    with pytest.raises(InputError, match="a warm start was stopped here"):
        warm_up(plan)


def test_a_loss_that_is_not_finite_stops_before_the_update(tmp_path: Path) -> None:
    plan = plan_for(tmp_path / "run")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan.engine, "accumulate", lambda *_: {"tokens": 1.0, "loss": float("nan")})
        with pytest.raises(EngineError, match="update 0: the loss is not finite"):
            warm_up(plan)
    assert isinstance(plan.engine, FakeEngine)
    assert not plan.engine.delta.any()


@pytest.mark.usefixtures("one_thread")
def test_the_gradient_is_torchs_own_and_masked_tokens_move_nothing(tiny_model: Path) -> None:
    """Cross entropy of transformers' logits with labels on the learned tokens only, weights and all."""
    import torch

    from local_model import transformers_logits
    from strop.engines.local.learner import Learner, LearnerSettings
    from strop.engines.local.tokenizer import HFTokenizer
    from strop.engines.local.weights import LoraShape, adapted, load_base
    from strop.inference.chat import Chat
    from strop.training.lessons import demonstration
    from strop.trajectory import codec

    messages = [
        {"role": "user", "content": "ab"},
        {"role": "assistant", "content": "cde", "weight": 0},
        {"role": "user", "content": "f"},
        {"role": "assistant", "content": "gh", "weight": 2},
        {"role": "user", "content": "i"},
        {"role": "assistant", "content": "jkl"},
    ]
    trajectory = codec.from_dict({"messages": messages}, where="here:1")
    made = demonstration(trajectory, Chat(HFTokenizer.load(tiny_model)))
    assert made is not None
    model = adapted(load_base(tiny_model, torch.float32, "cpu"), LoraShape(rank=4, alpha=8), None, seed=1)
    learner = Learner(model, LearnerSettings())
    torch.manual_seed(3)
    with torch.no_grad():
        for parameter in learner.parameters:
            parameter.add_(0.05 * torch.randn_like(parameter))
    reported = learner.accumulate(made.rows, made.weights, "supervised")
    ours = [parameter.grad.clone() / reported["tokens"] for parameter in learner.parameters]
    learner.forget()

    ids = made.rows[0].ids.tolist()
    # Counted by hand: <s>user: ab</s> is 10 tokens, <s>assistant: is 12, cde</s> is 4, and so on.
    weights = [0.0] * (10 + 12 + 4 + 9 + 12) + [2.0] * 3 + [0.0] * (9 + 12) + [1.0] * 4
    assert len(weights) == len(ids)
    logits = transformers_logits(model, ids)
    losses = torch.nn.functional.cross_entropy(logits[:-1], torch.tensor(ids[1:]), reduction="none")
    loss = (losses * torch.tensor(weights[1:])).sum() / 7
    loss.backward()
    assert reported["tokens"] == 7
    assert reported["loss"] == pytest.approx(float(loss.detach()), rel=1e-5)
    for mine, parameter in zip(ours, learner.parameters, strict=True):
        torch.testing.assert_close(mine, parameter.grad, rtol=1e-3, atol=1e-6)


def test_lines_are_plain_json(tmp_path: Path) -> None:
    lines = warm_up(plan_for(tmp_path / "run", epochs=1))
    assert json.loads(json.dumps(lines, allow_nan=False)) == lines

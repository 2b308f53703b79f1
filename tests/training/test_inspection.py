"""What is kept of a batch that the learner could do nothing with."""

import asyncio
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_loop import plan_for

from strop.engines.fake import FakeEngine
from strop.errors import EngineError
from strop.store import checkpoints
from strop.store.run import Run
from strop.training.batch import AdvantageRule, training_batch
from strop.training.loop import part, train


def test_the_batch_at_fault_can_be_read_as_the_learner_saw_it(tmp_path: Path) -> None:
    """The gradient of the third step is not finite: the error names the file, the last checkpoint stands."""
    plan = plan_for(tmp_path / "run")
    assert isinstance(plan.engine, FakeEngine)
    accumulate, calls = plan.engine.accumulate, []

    def poisoned(*args: Any) -> Any:
        calls.append(args)
        told = accumulate(*args)
        return {**told, "loss": math.inf, "kl": math.nan} if len(calls) == 3 else told

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan.engine, "accumulate", poisoned)
        with pytest.raises(EngineError) as caught:
            asyncio.run(train(plan))
    run = Run.view(tmp_path / "run")
    path = run.path / "inspect/update-0002.jsonl"
    said = "loss, kl not finite; lower the learning rate and resume"
    assert str(caught.value) == f"step 2: {said}; what it was given is in {path}"
    head, *lines = [json.loads(line) for line in path.read_text().splitlines()]
    rows, advantages = calls[-1]
    assert head == {"schema": 1, "step": 2, "reason": said, "rows": len(rows)}
    for line, row, advantage in zip(lines, rows, advantages, strict=True):
        assert line["ids"] == row.ids.tolist()
        assert np.flatnonzero(line["sampled"]).tolist() == np.flatnonzero(row.mask).tolist()
        assert line["logprobs"] == row.logprobs.tolist()
        assert (line["trajectory_id"], line["advantage"]) == (row.trajectory_id, advantage)
    latest = checkpoints.latest(run)
    assert latest is not None
    assert latest.step == 1
    event = run.events()[-1]
    assert (event["kind"], event["step"], event["batch"]) == ("update_failed", 2, "update-0002.jsonl")


def test_an_engine_that_refuses_the_step_leaves_the_batch_too(tmp_path: Path) -> None:
    plan = plan_for(tmp_path / "run", steps=1)

    def refuse() -> Any:
        raise EngineError("step: the gradient is not finite; lower the learning rate")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan.engine, "step", refuse)
        with pytest.raises(EngineError, match=r"step 0: step: the gradient is not finite.*update-0000"):
            asyncio.run(train(plan))
    kept = (tmp_path / "run/inspect/update-0000.jsonl").read_text().splitlines()
    groups = list(plan.run.read_trajectories(part(0)))
    assert len(kept) == 1 + len(groups)


def test_after_it_the_run_can_be_resumed(tmp_path: Path) -> None:
    test_an_engine_that_refuses_the_step_leaves_the_batch_too(tmp_path)
    lines = asyncio.run(train(plan_for(tmp_path / "run", resume=True))).lines
    assert [line["step"] for line in lines] == [0, 1, 2, 3]


def test_nothing_is_kept_of_a_run_that_went_well(tmp_path: Path) -> None:
    asyncio.run(train(plan_for(tmp_path / "run", steps=2)))
    assert not (tmp_path / "run/inspect").exists()
    assert training_batch([], AdvantageRule()).rows == []

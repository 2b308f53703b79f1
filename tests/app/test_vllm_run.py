"""A whole run with a real vLLM that is killed twice: the run ends, and nothing that was judged is lost."""

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from toy_project import LetterJudge, write_project

from local_model import write_model
from strop import app
from strop.config import load
from strop.engines.vllm.sampler import VllmSampler
from strop.engines.vllm.server import OwnServer
from strop.store.run import Run

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(3600)]
PARTS = ["judged-heldout", "train-0000", "train-0001"]


class Killer:
    """Kills the vLLM of this process: `with_next_request`, while that waits for its answer, or at once."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.with_next_request = False
        self._group = 0
        start, ask = OwnServer.start, VllmSampler._ask

        def started(server: OwnServer) -> None:
            start(server)
            assert server._process is not None
            self._group = server._process.pid

        async def asked(sampler: VllmSampler, *request: Any) -> dict[str, Any]:
            if self.with_next_request:
                self.with_next_request = False
                # Stopped, it takes the request and cannot answer it.
                os.killpg(self._group, signal.SIGSTOP)
                asyncio.get_running_loop().call_later(1.0, self.now)
            return await ask(sampler, *request)

        patch.setattr(OwnServer, "start", started)
        patch.setattr(VllmSampler, "_ask", asked)

    def now(self) -> None:
        os.killpg(self._group, signal.SIGKILL)


@pytest.fixture
def killer() -> Iterator[Killer]:
    if "STROP_VLLM_PYTHON" not in os.environ:
        pytest.skip("needs a vLLM: make test-vllm, or set STROP_VLLM_PYTHON to a Python that has one")
    with pytest.MonkeyPatch.context() as patch:
        yield Killer(patch)


def test_a_run_whose_server_is_killed_while_sampling_and_while_judging(
    tmp_path: Path, judge: LetterJudge, killer: Killer
) -> None:
    kept: dict[str, bytes] = {}
    path = tmp_path / "runs" / "run"
    model = write_model(tmp_path / "model", hidden_size=128)
    config = load(
        write_project(tmp_path, model, judge.url),
        ['engine.kind="vllm"', f"engine.python={os.environ['STROP_VLLM_PYTHON']}"],
    )

    def at_step(stage: str, done: int = 0, total: int = 0, step: int = 0, steps: int = 0) -> None:
        begun = (stage, step) == ("rollout", 1) and steps and not kept
        if begun:
            kept.update({part: (path / "verdicts" / f"{part}.jsonl").read_bytes() for part in PARTS[:2]})
            killer.with_next_request = True

    def at_question() -> None:
        """The first question of the last step: attempts are done, or others still ask the policy."""
        if kept and not killer.with_next_request:
            judge.on_asked = lambda: None
            killer.now()

    judge.on_asked = at_question
    summary = app.train(config, progress=at_step)
    assert_whole(Run.view(path), summary, judge)
    for part, said in kept.items():
        assert (path / "verdicts" / f"{part}.jsonl").read_bytes() == said
    assert set(kept) == set(PARTS[:2])


def assert_whole(run: Run, summary: dict[str, Any], judge: LetterJudge) -> None:
    events = run.events()
    kinds = [event["kind"] for event in events]
    assert kinds.count("server_lost") == kinds.count("server_restored") == 2
    assert kinds.count("attempt_lost") >= 1
    assert all(event["seconds"] > 0 for event in events if event["kind"] == "server_restored")
    assert summary["steps"] == len(run.steps()) == 2
    assert summary["unscored"] == 0
    assert run.parts("verdicts") == PARTS
    asked = 0
    for part in PARTS:
        verdicts = run.read_verdicts(part)
        groups = {attempt.group_id for attempt in run.read_trajectories(part)}
        assert sorted(verdict["group_id"] for verdict in verdicts) == sorted(groups)
        asked += sum(verdict["cost"]["calls"] for verdict in verdicts)
    # Every question that the judge was asked is in a verdict: none was asked again.
    assert asked == judge.asked
    for step in run.steps():
        assert step["published"]["probe_gap"] <= step["published"]["probe_bound"]

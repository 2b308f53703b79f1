"""kill -9 in the middle of a step, then --resume: the same numbers as a run that was never killed."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from toy_project import KEY, LetterJudge, letter_judge, write_project

from strop.store.run import Run

PATIENCE_S = 200.0


@contextmanager
def training(run_toml: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """`strop train` in a process of its own, as a user starts it."""
    code = "import sys; from strop.cli.main import main; sys.exit(main())"
    environment = {**os.environ, "TOY_JUDGE_KEY": KEY, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    process = subprocess.Popen(
        [sys.executable, "-c", code, "train", str(run_toml), "--json", *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def kill_when(process: subprocess.Popen[str], ready: Callable[[], bool]) -> None:
    """SIGKILL as soon as `ready`; fails if the process ends before, or never comes to it."""
    until = time.monotonic() + PATIENCE_S
    while not ready():
        assert process.poll() is None, process.communicate()[1][-2000:]
        assert time.monotonic() < until
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    assert process.wait(PATIENCE_S) == -signal.SIGKILL


def finish(run_toml: Path, *arguments: str) -> None:
    with training(run_toml, *arguments) as process:
        out, err = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, err[-2000:]
        assert json.loads(out)["steps"] == 2


def steps_without_seconds(folder: Path) -> list[dict[str, object]]:
    lines = Run.view(folder / "runs" / "run").steps()
    return [{key: value for key, value in line.items() if key != "seconds"} for line in lines]


@pytest.fixture(scope="module")
def judge() -> Iterator[LetterJudge]:
    with letter_judge() as running:
        yield running


@pytest.fixture(scope="module")
def uninterrupted(
    tmp_path_factory: pytest.TempPathFactory, tiny_model: Path, judge: LetterJudge
) -> list[dict[str, object]]:
    folder = tmp_path_factory.mktemp("straight")
    finish(write_project(folder, tiny_model, judge.url))
    return steps_without_seconds(folder)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killed_twice_it_ends_as_if_it_had_not_been(
    tmp_path: Path, tiny_model: Path, judge: LetterJudge, uninterrupted: list[dict[str, object]]
) -> None:
    """First between the checkpoint of step 0 and its line, or near it; then while step 1 is judged.

    Two held-out groups and two of step 0 are judged, in two calls each, before it hangs. After the first
    kill step 0 may have to be done again, from cached replies.
    """
    run_toml = write_project(tmp_path, tiny_model, judge.url)
    run = tmp_path / "runs" / "run"
    judge.good, judge.hangs = judge.asked + 8, True
    with training(run_toml) as process:
        kill_when(process, (run / "checkpoints" / "latest").is_file)
    assert len(steps_without_seconds(tmp_path)) <= 1
    judge.good = judge.asked
    with training(run_toml, "--resume") as process:
        kill_when(
            process, lambda: judge.asked > judge.good and (run / "trajectories/train-0001.jsonl").is_file()
        )
    assert steps_without_seconds(tmp_path) == uninterrupted[:1]
    judge.good, judge.hangs = 1 << 30, False
    finish(run_toml, "--resume")
    assert steps_without_seconds(tmp_path) == uninterrupted
    assert [event["kind"] for event in Run.view(run).events()].count("resumed") == 2


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killed_before_the_first_step_it_starts_over(
    tmp_path: Path, tiny_model: Path, judge: LetterJudge, uninterrupted: list[dict[str, object]]
) -> None:
    run_toml = write_project(tmp_path, tiny_model, judge.url)
    judge.good, judge.hangs = judge.asked + 4, True
    with training(run_toml) as process:
        kill_when(process, (tmp_path / "runs/run/trajectories/heldout-before.jsonl").is_file)
    judge.good, judge.hangs = 1 << 30, False
    finish(run_toml, "--resume")
    assert steps_without_seconds(tmp_path) == uninterrupted

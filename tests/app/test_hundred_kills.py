"""A hundred runs of ten steps, each killed somewhere with SIGKILL and resumed: a hundred identical ends."""

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from toy_project import KEY, LetterJudge, letter_judge, write_project

from strop.store import checkpoints
from strop.store.run import Run

KILLS = 100
STEPS = 10
CHANGES = (
    ("steps = 2", f"steps = {STEPS}\nkeep_checkpoints = 1"),
    ("max_tokens = 12", "max_tokens = 6"),
    ("judged_groups = 2", "judged_groups = 1\nevery = 4\ncompared_groups = 1"),
)

Order = Callable[..., dict[str, Any]]
End = dict[str, Any]


@pytest.fixture(scope="module")
def judge() -> Iterator[LetterJudge]:
    with letter_judge() as running:
        yield running


@pytest.fixture(scope="module")
def order() -> Iterator[Order]:
    environment = {**os.environ, "TOY_JUDGE_KEY": KEY, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("killing.py"))],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin
    assert process.stdout
    asked, answers = process.stdin, process.stdout

    def give(run_toml: Path, **how: Any) -> dict[str, Any]:
        asked.write(json.dumps({"run_toml": str(run_toml), **how}) + "\n")
        asked.flush()
        answer: dict[str, Any] = json.loads(answers.readline())
        assert answer["how"] != "failed", run_toml
        return answer

    yield give
    asked.close()
    process.wait(60)
    answers.close()


def project(folder: Path, model: Path, judge: LetterJudge) -> Path:
    run_toml = write_project(folder, model, judge.url)
    text = run_toml.read_text()
    for old, new in CHANGES:
        assert old in text
        text = text.replace(old, new)
    run_toml.write_text(text)
    return run_toml


def end_of(folder: Path) -> End:
    """All that the run left but seconds and the judge's bill: a run that was killed asks again."""
    path = folder / "runs" / "run"
    run = Run.view(path)
    latest, best = checkpoints.latest(run), checkpoints.best(run)
    assert latest is not None
    files = {file.relative_to(latest.path): file.read_bytes() for file in latest.path.rglob("*.*")}
    files.pop(Path("manifest.json"))
    summary = run.summary()
    assert summary is not None
    return {
        "steps": [timeless(line) for line in run.steps()],
        "evaluations": [timeless(line) for line in run.evaluations()],
        "latest": latest.path.name,
        "best": best and best.path.name,
        "files": files,
        "trajectories": {p: run.part_path("trajectories", p).read_bytes() for p in run.parts("trajectories")},
        "grades": {p: run.read_grades(p) for p in run.parts("grades")},
        "summary": {name: value for name, value in summary.items() if name in ("steps", "truth", "curve")},
        "leftovers": [file.name for file in path.rglob(".tmp-*")],
    }


def timeless(line: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in line.items() if key != "seconds"}


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_a_hundred_kills_have_one_end(
    tmp_path: Path, tiny_model: Path, judge: LetterJudge, order: Order
) -> None:
    """Every second one by the clock, at any instant of a run; the others at a random one of all the things
    that a run does to its files."""
    first = order(project(tmp_path / "whole", tiny_model, judge))
    end, rng = end_of(tmp_path / "whole"), random.Random(0)
    assert [line["step"] for line in end["steps"]] == list(range(STEPS))
    assert len({line["engine"]["loss"] for line in end["steps"]}) == STEPS
    assert end["leftovers"] == []
    kills = number = 0
    while kills < KILLS:
        run_toml = project(tmp_path / f"{number:03d}", tiny_model, judge)
        by_clock = {"after_s": rng.uniform(0, first["seconds"])}
        at_event = {"at_event": rng.randrange(1, first["events"])}
        killed = order(run_toml, **(by_clock if number % 2 else at_event))["how"] == "killed"
        if killed:
            kills += 1
            order(run_toml)
        assert end_of(run_toml.parent) == end, f"run {number}"
        number += 1
        assert number < 2 * KILLS

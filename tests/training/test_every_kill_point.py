"""Killed at every single thing that a run does to the disk, and at every stage, it resumes to one end."""

import asyncio
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_loop import End, Killed, ends_with, plan_for

from strop.store.run import Run
from strop.training.loop import TrainPlan, train

STEPS = 3
CALLS = ("mkdir", "rename", "replace", "unlink", "rmdir", "ftruncate")


class Life:
    """Counts what is done; dies at the event numbered `dies_at`, and does nothing whatever after that."""

    def __init__(self, dies_at: float = float("inf")) -> None:
        self.done: list[str] = []
        self._left = dies_at

    def event(self, name: str) -> None:
        if self._left <= 0:
            raise Killed
        self._left -= 1
        self.done.append(name)

    def watched(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **kwargs: Any) -> Any:
            self.event(name)
            return function(*args, **kwargs)

        return called

    def torn(self, write: Callable[[int, Any], int]) -> Callable[[int, Any], int]:
        """A write that two system calls make, so that death may come in the middle of a line."""

        def called(handle: int, data: Any) -> int:
            self.event("first half")
            half = write(handle, data[: len(data) // 2])
            self.event("second half")
            return half + write(handle, data[half:])

        return called

    @contextmanager
    def lived(self) -> Iterator[None]:
        """The file system calls of the process, while the block lasts."""
        with pytest.MonkeyPatch.context() as patch:
            for name in CALLS:
                patch.setattr(os, name, self.watched(name, getattr(os, name)))
            patch.setattr(os, "fsync", lambda _handle: self.event("fsync"))
            patch.setattr(os, "write", self.torn(os.write))
            yield

    def plan(self, plan: TrainPlan) -> TrainPlan:
        """The plan with its stages and the engine's doings among the events."""
        engine: Any = plan.engine
        for name in ("accumulate", "step", "save", "publish", "load"):
            setattr(engine, name, self.watched(name, getattr(engine, name)))
        return replace(plan, progress=lambda progress: self.event(progress.stage))


def live(directory: Path, life: Life, **changes: Any) -> bool:
    """One process: begins or resumes. Whether it came to its end."""
    try:
        with life.lived():
            begun = (directory / "run.toml").exists()
            plan = plan_for(directory, resume=begun, steps=STEPS, **changes)
            asyncio.run(train(life.plan(plan)))
    except Killed:
        return False
    return True


@pytest.fixture(scope="module", params=[1, 2], ids=["keeps 1", "keeps 2"])
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[int, End, Life]:
    directory, life = tmp_path_factory.mktemp("whole") / "run", Life()
    assert live(directory, life, keep_checkpoints=request.param)
    return request.param, ends_with(directory), life


def test_the_events_are_all_of_a_run(whole: tuple[int, End, Life]) -> None:
    """By hand, of a step: two rollout files, a checkpoint, the latest pointer, a line."""
    done = whole[2].done
    for name in ("rollout", "judge", "advantages", "update", "checkpoint", "publish", "save", "rename"):
        assert done.count(name) >= STEPS
    # run.toml once; a step: the attempts twice, the manifest and `latest`.
    assert done.count("replace") == 1 + STEPS * 4
    assert done.count("first half") == done.count("second half") == STEPS


def test_killed_at_every_event_it_resumes_to_one_end(tmp_path: Path, whole: tuple[int, End, Life]) -> None:
    keep, end, life = whole
    for point, name in enumerate(life.done):
        directory = tmp_path / f"{point:03d}"
        assert not live(directory, Life(point), keep_checkpoints=keep)
        assert live(directory, Life(), keep_checkpoints=keep)
        assert ends_with(directory) == end, f"killed before event {point}, {name}"
        assert not list(Run.view(directory).path.rglob(".tmp-*"))


def test_killed_again_and_again_it_ends_there_too(tmp_path: Path, whole: tuple[int, End, Life]) -> None:
    """Each life is short, and some of them end before anything is won."""
    keep, end, life = whole
    for number in range(10):
        directory, rng = tmp_path / f"{number:03d}", random.Random(number)
        lives = 1
        while not live(directory, Life(rng.randrange(len(life.done) * 3 // 4)), keep_checkpoints=keep):
            lives += 1
            assert lives < 200
        assert ends_with(directory) == end, f"{number}: {lives} lives"

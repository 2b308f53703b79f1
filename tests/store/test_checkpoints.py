"""Checkpoints survive a kill at any instant: the pointers always lead to a whole directory."""

import errno
import hashlib
import json
import os
from pathlib import Path

import pytest

from strop.errors import InputError, ModelError, StropError
from strop.store import checkpoints
from strop.store.run import Run


class Killed(BaseException):
    """Stands for a kill: nothing may catch it."""


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.create(tmp_path / "run", "")


def weights(text: str):
    def write(path: Path) -> None:
        assert list(path.iterdir()) == []
        (path / "adapter.bin").write_text(text)
        (path / "optimizer").mkdir()
        (path / "optimizer" / "state.bin").write_text(text * 2)

    return write


def names(run: Run) -> list[str]:
    return sorted(path.name for path in (run.path / "checkpoints").iterdir())


def test_before_the_first_there_is_none(run: Run) -> None:
    assert checkpoints.latest(run) is None
    assert checkpoints.best(run) is None
    assert checkpoints.prune(run) == []


def test_saved_is_what_latest_gives_back(run: Run) -> None:
    checkpoints.save(run, 3, weights("w3"), {"seed": 7, "version": "v3"})
    found = checkpoints.latest(Run.open(run.path))
    assert found is not None
    assert (found.path.name, found.step, found.manifest) == ("0003", 3, {"seed": 7, "version": "v3"})
    assert (found.path / "optimizer" / "state.bin").read_text() == "w3w3"
    assert names(run) == ["0003", "latest"]
    assert (run.path / "checkpoints" / "latest").read_text() == "0003\n"


def test_best_moves_only_when_told(run: Run) -> None:
    checkpoints.save(run, 0, weights("a"), {}, best=True)
    checkpoints.save(run, 1, weights("b"), {})
    best, latest = checkpoints.best(run), checkpoints.latest(run)
    assert best is not None
    assert latest is not None
    assert (best.step, latest.step) == (0, 1)


@pytest.mark.parametrize("kind", [Killed, RuntimeError])
def test_a_failure_inside_write_leaves_the_old_checkpoint(run: Run, kind: type[BaseException]) -> None:
    checkpoints.save(run, 0, weights("old"), {})

    def dies(path: Path) -> None:
        (path / "adapter.bin").write_text("half")
        raise kind

    with pytest.raises(kind):
        checkpoints.save(run, 1, dies, {})
    found = checkpoints.latest(Run.open(run.path))
    assert found is not None
    assert found.step == 0
    assert names(run) == ["0000", "latest"]


@pytest.mark.parametrize("call", range(12))
def test_a_kill_between_any_two_calls_to_the_system_leaves_a_whole_checkpoint(
    run: Run, monkeypatch: pytest.MonkeyPatch, call: int
) -> None:
    checkpoints.save(run, 0, weights("old"), {}, best=True)
    left = call
    for name in ("rename", "replace", "fsync"):
        original = getattr(os, name)

        def counted(*args: object, original=original) -> object:
            nonlocal left
            left -= 1
            if left < 0:
                raise Killed
            return original(*args)

        monkeypatch.setattr(os, name, counted)
    survived = True
    try:
        checkpoints.save(run, 1, weights("new"), {}, best=True)
    except Killed:
        survived = False
    monkeypatch.undo()
    again = Run.open(run.path)
    for found in (checkpoints.latest(again), checkpoints.best(again)):
        assert found is not None
        assert (found.path / "adapter.bin").read_text() == ["old", "new"][found.step]
    assert survived == (left >= 0)
    redone = checkpoints.save(again, 1, weights("redone"), {}, best=True)
    latest = checkpoints.latest(again)
    assert latest == redone
    assert (redone.path / "adapter.bin").read_text() == "redone"


def test_the_kill_points_reach_from_the_first_call_to_beyond_the_last(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    for name in ("rename", "replace", "fsync"):
        original = getattr(os, name)
        monkeypatch.setattr(
            os, name, lambda *args, name=name, original=original: (calls.append(name), original(*args))[1]
        )
    checkpoints.save(run, 1, weights("new"), {}, best=True)
    assert 8 <= len(calls) <= 14
    assert calls.index("rename") > calls.index("replace") > calls.index("fsync")


def test_a_full_disk_is_one_line_and_leaves_the_old_checkpoint(run: Run) -> None:
    checkpoints.save(run, 0, weights("old"), {})

    def fills(path: Path) -> None:
        (path / "adapter.bin").write_text("half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(StropError, match=r"checkpoints/0001: cannot be written \(No space left on device\)"):
        checkpoints.save(run, 1, fills, {})
    found = checkpoints.latest(run)
    assert found is not None
    assert found.step == 0
    assert names(run) == ["0000", "latest"]


def test_an_orphan_of_a_killed_run_is_replaced_but_what_latest_needs_is_not(run: Run) -> None:
    checkpoints.save(run, 0, weights("zero"), {})
    orphan = run.path / "checkpoints" / "0001"
    orphan.mkdir()
    (orphan / "adapter.bin").write_text("rubbish")
    assert checkpoints.save(run, 1, weights("one"), {}).path == orphan
    assert (orphan / "adapter.bin").read_text() == "one"
    twice = checkpoints.save(run, 1, weights("again"), {})
    assert twice.path.name == "0001.1"
    assert (orphan / "adapter.bin").read_text() == "one"
    assert checkpoints.latest(run) == twice


@pytest.mark.parametrize(
    ("damage", "line"),
    [
        (lambda p: (p / "adapter.bin").unlink(), "adapter.bin is missing"),
        (lambda p: (p / "adapter.bin").write_text("www"), "adapter.bin has 3 bytes, not 2"),
        (lambda p: (p / "adapter.bin").write_text("ww"), "adapter.bin has changed since it was saved"),
        (lambda p: (p / "optimizer" / "state.bin").write_text(""), "optimizer/state.bin has 0 bytes, not 4"),
        (lambda p: (p / "manifest.json").unlink(), "manifest.json cannot be read"),
        (lambda p: (p / "manifest.json").write_text("{"), "manifest.json cannot be read"),
        (lambda p: (p / "manifest.json").write_text("[]"), "manifest.json cannot be read"),
        (
            lambda p: (p / "manifest.json").write_text('{"schema": 1, "step": 3}'),
            "manifest.json is incomplete",
        ),
        (lambda p: (p / "manifest.json").write_text('{"schema": 2}'), "saved by a newer strop"),
        (lambda p: p.rename(p.with_name("moved")), "manifest.json cannot be read"),
    ],
)
def test_a_broken_checkpoint_is_refused_in_one_line(run: Run, damage: object, line: str) -> None:
    saved = checkpoints.save(run, 3, weights("w3"), {})
    assert callable(damage)
    damage(saved.path)
    with pytest.raises(ModelError) as caught:
        checkpoints.latest(run)
    assert str(caught.value).startswith(f"{saved.path}: {line}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["../../etc", "", "manifest.json"])
def test_a_pointer_that_leads_elsewhere_is_refused(run: Run, name: str) -> None:
    checkpoints.save(run, 0, weights("a"), {})
    (run.path / "checkpoints" / "latest").write_text(name)
    with pytest.raises(ModelError, match="write the name of a checkpoint"):
        checkpoints.latest(run)


def test_a_manifest_that_is_no_json_is_refused_before_anything_moves(run: Run) -> None:
    with pytest.raises(InputError, match="cannot be written as JSON"):
        checkpoints.save(run, 0, weights("a"), {"loss": float("nan")})
    assert checkpoints.latest(run) is None


def test_the_manifest_lists_every_file_with_size_and_hash(run: Run) -> None:
    saved = checkpoints.save(run, 2, weights("ab"), {})
    sealed = json.loads((saved.path / "manifest.json").read_text())
    assert (sealed["schema"], sealed["step"]) == (1, 2)
    assert sealed["files"] == {
        "adapter.bin": {
            "bytes": 2,
            "sha256": "fb8e20fc2e4c3f248c60c39bd652f3c1347298bb977b8b4d5903b85055620603",
        },
        "optimizer/state.bin": {
            "bytes": 4,
            "sha256": hashlib.sha256(b"abab").hexdigest(),
        },
    }


def test_prune_keeps_the_newest_and_never_latest_or_best(run: Run) -> None:
    for step in range(12):
        checkpoints.save(run, step, weights(str(step)), {}, best=step == 1)
    assert checkpoints.prune(run, keep=2) == [f"{step:04d}" for step in (0, *range(2, 10))]
    assert names(run) == ["0001", "0010", "0011", "best", "latest"]
    assert checkpoints.prune(run, keep=0) == ["0010"]
    best, latest = checkpoints.best(run), checkpoints.latest(run)
    assert best is not None
    assert latest is not None
    assert (best.step, latest.step) == (1, 11)


def test_prune_counts_steps_as_numbers(run: Run) -> None:
    for step in (9_999, 10_000, 10_001):
        checkpoints.save(run, step, weights("w"), {})
    assert checkpoints.prune(run, keep=2) == ["9999"]


def test_best_may_be_pointed_at_a_checkpoint_that_is_there(run: Run) -> None:
    for step in range(4):
        checkpoints.save(run, step, weights(str(step)), {})
    assert checkpoints.best(run) is None
    checkpoints.point_best(run, "0001")
    best = checkpoints.best(run)
    assert best is not None
    assert best.step == 1
    checkpoints.prune(run, keep=1)
    assert names(run) == ["0001", "0003", "best", "latest"]
    checkpoints.point_best(run, "0002")
    assert checkpoints.best(run) is None
    checkpoints.point_best(run, None)
    assert names(run) == ["0001", "0003", "latest"]

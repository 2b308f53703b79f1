"""Whole runs on a tiny model: one thread, no model hub, a judge's key in the environment."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from toy_project import KEY, LetterJudge, letter_judge


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch, one_thread: None, patient_sampler: None, tmp_path: Path) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("TOY_JUDGE_KEY", KEY)
    monkeypatch.setenv("STROP_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def judge() -> Iterator[LetterJudge]:
    with letter_judge() as running:
        yield running

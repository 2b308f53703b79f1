"""Whole runs on a tiny model: one thread, no model hub, no cache but a test's own, a judge's key."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from toy_project import KEY, LetterJudge, letter_judge


@pytest.fixture(autouse=True, scope="module")
def _quiet(patient_sampler: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """From the first fixture of a module on: some of them train."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.setenv("TOY_JUDGE_KEY", KEY)
        patch.setenv("STROP_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True)
def _own_cache(_quiet: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("STROP_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def judge() -> Iterator[LetterJudge]:
    with letter_judge() as running:
        yield running

"""Whether a file can be written is known before the work that makes it."""

import os
from pathlib import Path

import pytest

from strop.errors import StropError
from strop.trajectory.atomic import check_place


def test_a_place_that_replacing_can_make_is_fine_and_is_not_made(tmp_path: Path) -> None:
    assert check_place(tmp_path / "a" / "b" / "scores.jsonl") is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("inside", ["scores.jsonl", "deeper/scores.jsonl"])
def test_a_file_in_the_way_is_said(tmp_path: Path, inside: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StropError, match="a file is where a folder is needed"):
        check_place(tmp_path / "file" / inside)


def test_a_dangling_link_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(StropError, match="a file is where a folder is needed"):
        check_place(tmp_path / "link" / "scores.jsonl")


def test_a_folder_that_may_not_be_written_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path)
    with pytest.raises(StropError, match=r"scores\.jsonl: cannot be written \(Permission denied\)"):
        check_place(tmp_path / "scores.jsonl")

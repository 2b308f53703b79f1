"""Rubrics come from files, told apart by content."""

from pathlib import Path

import pytest

from strop.errors import InputError
from strop.judge.rubric import default_rubric, read_rubric, rubric_hash


def test_default_rubric_is_four_lines_of_package_data() -> None:
    assert [line[:2] for line in default_rubric().splitlines()] == ["- "] * 4


def test_rubric_files(tmp_path: Path) -> None:
    file = tmp_path / "rubric.md"
    file.write_text("\n- be kind\n\n", encoding="utf-8")
    assert read_rubric(file) == "- be kind"
    assert rubric_hash("- be kind") != rubric_hash("- be quick")
    file.write_text(" \n")
    with pytest.raises(InputError, match="empty"):
        read_rubric(file)
    file.write_bytes(b"\xff\xfe\xff")
    with pytest.raises(InputError, match="not UTF-8"):
        read_rubric(file)
    file.write_bytes("\ufeff- be kind\r\n- be quick\r\n".encode())
    assert read_rubric(file) == "- be kind\n- be quick"
    with pytest.raises(InputError, match=r"missing\.md"):
        read_rubric(tmp_path / "missing.md")

"""What every study's command shares: options, and pages that are replaced whole or not at all."""

import json
from pathlib import Path

import pytest
from studies.publishing import FOLDER, publish, study_parser

from strop.errors import StropError
from studies import publishing


def test_pages_are_replaced_and_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    publish({"a.md": "# Größe\n", "a.svg": "<svg/>"}, {"x": 1}, as_json=False, root=tmp_path)
    assert (tmp_path / FOLDER / "a.md").read_bytes() == "# Größe\n".encode()
    assert (tmp_path / FOLDER / "a.svg").read_text() == "<svg/>"
    assert capsys.readouterr().out == "wrote docs/studies/a.md, docs/studies/a.svg\n"
    assert sorted(path.name for path in (tmp_path / FOLDER).iterdir()) == ["a.md", "a.svg"]


def test_json_is_one_object_on_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    publish({"a.md": "new"}, {"x": [1, None]}, as_json=True, root=tmp_path)
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert json.loads(out) == {"x": [1, None]}


def test_a_page_that_cannot_be_written_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "docs").write_text("in the way")
    with pytest.raises(StropError, match=r"a\.md: cannot be written"):
        publish({"a.md": "new"}, {}, as_json=False, root=tmp_path)
    assert capsys.readouterr().out == ""


def test_the_root_is_the_project() -> None:
    assert (publishing.ROOT / "pyproject.toml").is_file()
    assert (publishing.ROOT / FOLDER).is_dir()


def test_options_hold_json_and_those_of_the_study() -> None:
    parser = study_parser("What is asked.\n\n    python -m studies.x")
    parser.add_argument("--runs", type=int, default=3)
    assert vars(parser.parse_args([])) == {"json": False, "runs": 3}
    assert vars(parser.parse_args(["--json", "--runs", "5"])) == {"json": True, "runs": 5}
    assert "\n    python -m studies.x\n" in parser.format_help()

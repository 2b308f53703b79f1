"""Size limits and words of the source."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
LONGEST_FUNCTION = 60
LONGEST_FILE = 450
JUNK_DRAWERS = {"utils", "util", "common", "helpers", "helper", "misc", "manager"}
MACHINE_PATH = re.compile(r"(?<![\w.])/(?:work|tmp|home|root|Users|opt|mnt)/\w")


def functions(source: str) -> Iterator[tuple[str, int]]:
    """Name and number of lines of every function, decorators not counted."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            yield node.name, node.end_lineno - node.lineno + 1


def written_by_hand() -> list[Path]:
    """Text files of the project, without this one, which has to name what it forbids."""
    folders = ("src", "tests", "docs", "scripts", "benchmarks", "studies", "examples", ".ci")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file()]
    files += [
        path for path in ROOT.iterdir() if path.suffix in {".md", ".toml", ".txt"} or path.name == "Makefile"
    ]
    text = {".py", ".md", ".toml", ".txt", ".html", ".js", ".css", ".j2", ""}
    return [path for path in files if path.suffix in text and path != Path(__file__)]


def test_there_is_source() -> None:
    assert ROOT / "src/strop/errors.py" in SOURCES


def test_lines_of_a_function_are_counted() -> None:
    source = "@first\n@second\ndef outer():\n    def inner():\n        return 1\n    return inner\n"
    assert sorted(functions(source)) == [("inner", 2), ("outer", 4)]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT / "src")))
def test_size(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    assert len(source.splitlines()) <= LONGEST_FILE
    assert [item for item in functions(source) if item[1] > LONGEST_FUNCTION] == []


def test_no_junk_drawers() -> None:
    names = {part for path in SOURCES for part in path.relative_to(ROOT / "src").with_suffix("").parts}
    assert names & JUNK_DRAWERS == set()


def test_no_path_of_a_machine() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {match.group()}"
        for path in written_by_hand()
        for match in MACHINE_PATH.finditer(path.read_text(encoding="utf-8", errors="replace"))
    ]
    assert found == []


def test_what_counts_as_a_path_of_a_machine() -> None:
    assert MACHINE_PATH.search("cp /home/me/model .")
    assert not MACHINE_PATH.search("see docs/work/plan or ~/tmp")

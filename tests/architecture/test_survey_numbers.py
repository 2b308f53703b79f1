"""Each failure in our survey of other trainers has a test by its number, or a reason in the log."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXTRA = {26, 27, 28, *range(41, 56)}
NUMBERS = {f"{'X' if number in EXTRA else 'T'}{number:02d}" for number in range(1, 56)}


def test_every_number_has_a_test_or_a_reason() -> None:
    names = [
        name
        for file in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(
            r"^\s*(?:async )?def (test_\w+)", file.read_text(encoding="utf-8"), re.MULTILINE
        )
    ]
    tested = {number.upper() for name in names for number in re.findall(r"(?<=_)[tx]\d\d(?=_)", name)}
    log = (ROOT / "docs/log.md").read_text(encoding="utf-8")
    explained = set(re.findall(r"^- ([TX]\d\d),", log, re.MULTILINE))
    assert NUMBERS - tested - explained == set()
    assert tested | explained <= NUMBERS

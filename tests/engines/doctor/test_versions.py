"""Versions against the table of tested ones."""

import re
from pathlib import Path

import pytest

from strop.engines.doctor import versions
from strop.engines.doctor.versions import OURS, found, ours

ROOT = Path(__file__).parents[3]
TABLE = {
    "tested": {"torch": ["2.13.0", "2.11.1"]},
    "bad": [
        {"library": "torch", "below": "2.9", "why": "too old"},
        {"library": "torch", "versions": ["2.12.1"], "why": "loses gradients"},
        {"library": "peft", "below": "9", "why": "another library's"},
    ],
}


@pytest.mark.parametrize(
    ("version", "state"),
    [
        ("2.13.0", "tested"),
        ("2.13", "tested"),
        ("2.13.0+cu128", "tested"),
        ("2.14.0.dev20261101", "newer than tested"),
        ("2.100.0", "newer than tested"),
        ("2.12.0", "not tested"),
        ("2.9.1", "older than tested"),
        ("2.8.9", "known bad"),
        ("2.12.1", "known bad"),
        (None, "absent"),
    ],
)
def test_a_version_stands_to_the_table(version: str | None, state: str) -> None:
    assert found("torch", version, TABLE).state == state


def test_known_bad_says_why_and_too_old_for_strop_is_bad() -> None:
    assert found("torch", "2.12.1", TABLE).why == "loses gradients"
    assert found("torch", "2.13.0", TABLE, least="2.20").why == "strop needs 2.20 or newer"
    assert found("numpy", "1.0", TABLE).state == "not tested"


def test_what_is_installed_for_these_tests_is_in_the_table() -> None:
    """Whoever tests with another version adds it."""
    states = {one.library: one.state for one in ours() if one.version is not None}
    assert "known bad" not in states.values()
    assert set(OURS) <= versions.tested_table()["tested"].keys()


def test_the_least_versions_are_those_of_the_package() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    least = versions._least()
    for library in OURS:
        (wanted,) = set(re.findall(rf'"{library}>=([\d.]+)"', text))
        assert least[library] == wanted


def test_every_entry_of_the_table_is_whole() -> None:
    table = versions.tested_table()
    assert all(entry["why"] and ("below" in entry or "versions" in entry) for entry in table["bad"])
    assert {entry["library"] for entry in table["bad"]} <= table["tested"].keys()

"""Results as a person and as a program read them."""

import json

import pytest

from strop.cli.output import emit, shown

TRUTH = {"estimate": 0.915, "low": 0.868, "high": 0.946, "n": 200, "method": "Wilson 95 %"}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (TRUTH, "0.915  [0.868, 0.946]  n = 200  Wilson 95 %"),
        ({"estimate": 0.5, "n": 4}, "0.500  n = 4"),
        ({"estimate": None, "n": 3, "reason": "all succeeded"}, "unknown: all succeeded (n = 3)"),
        ({"estimate": None, "n": 1, "method": "none: one cluster"}, "unknown: one cluster (n = 1)"),
        ({"estimate": None}, "unknown: too little data (n = 0)"),
        ({"rollout": 241.2, "judge_calls": 12}, "rollout 241, judge calls 12"),
        ({}, "none"),
        ([], "none"),
        (["a", "b"], "a, b"),
        (None, "unknown"),
        (True, "yes"),
        (0.1234567, "0.123"),
        (12, "12"),
    ],
)
def test_shown(value: object, text: str) -> None:
    assert shown(value) == text


def test_json_is_one_line_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    emit({"truth_after": TRUTH, "run": "runs/a"}, as_json=True, title="not printed")
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert json.loads(out) == {"truth_after": TRUTH, "run": "runs/a"}


def test_table_has_every_key(capsys: pytest.CaptureFixture[str]) -> None:
    emit({"truth_after": TRUTH, "tied_share": 0.25, "run": "runs/[a]"}, as_json=False, title="strop demo")
    out = capsys.readouterr().out
    for part in ("strop demo", "truth after", "[0.868, 0.946]", "tied share", "0.25", "runs/[a]"):
        assert part in out


def test_a_title_longer_than_its_table_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    emit({"verdicts": 3}, as_json=False, title="strop judge --replay scores.jsonl")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "strop judge --replay scores.jsonl"
    assert max(map(len, lines[1:])) < len(lines[0])


def test_number_that_json_does_not_know_is_refused() -> None:
    with pytest.raises(ValueError, match="JSON"):
        emit({"loss": float("nan")}, as_json=True)

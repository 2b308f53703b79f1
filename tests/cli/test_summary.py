"""The tables of a finished run."""

import json
from typing import Any

import pytest

from strop.cli.summary import emit_run


def estimate(value: float) -> dict[str, Any]:
    return {"estimate": value, "low": value - 0.1, "high": value + 0.1, "n": 20, "method": "by hand"}


def comparison(measure: str, ours: float, null: float) -> dict[str, Any]:
    return {
        "measure": measure,
        "results": {"ours": estimate(ours)},
        "nulls": {"length": estimate(null)},
        "verdict": f"{measure} verdict",
    }


SUMMARY = {
    "truth_after": estimate(0.7),
    "steps": 4,
    "curve": [{"step": 0}],
    "judge": comparison("agreement", 0.88, 0.5),
    "grader": {"predict": comparison("AUROC", 0.91, 0.62)},
    "attribution": comparison("hit rate", 0.8, 0.33),
}


def test_every_result_stands_beside_its_nulls(capsys: pytest.CaptureFixture[str]) -> None:
    emit_run(SUMMARY, as_json=False, title="a run")
    out = capsys.readouterr().out
    assert "0.700  [0.600, 0.800]  n = 20" in out
    for shown in ("0.880", "0.910", "0.330", "null: length", "AUROC verdict", "hit rate verdict"):
        assert shown in out
    assert "curve" not in out


def test_json_is_the_whole_object(capsys: pytest.CaptureFixture[str]) -> None:
    emit_run(SUMMARY, as_json=True, title="a run")
    assert json.loads(capsys.readouterr().out) == SUMMARY

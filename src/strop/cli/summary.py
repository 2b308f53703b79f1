"""What a finished run prints: one JSON object, or its numbers with the nulls they have to beat."""

from collections.abc import Iterator, Mapping
from typing import Any

from strop.cli.output import emit

BEHIND = ("judge", "grader", "attribution", "curve", "evaluations", "groups", "trajectories", "judge_cost")
"""Keys of the summary that are objects of many numbers; the report shows them whole."""


def emit_run(result: Mapping[str, Any], *, as_json: bool, title: str) -> None:
    """Print a run's summary object (see `strop.audit.summary.audit`)."""
    if as_json:
        emit(result, as_json=True)
        return
    emit({key: value for key, value in result.items() if key not in BEHIND}, as_json=False, title=title)
    for heading, comparison in _comparisons(result):
        emit(_rows(comparison), as_json=False, title=heading)


def _comparisons(result: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    yield "the judge", result["judge"]
    yield "the step grader: will a run succeed?", result["grader"]["predict"]
    yield "the step grader: which step broke a run?", result["attribution"]


def _rows(comparison: Mapping[str, Any]) -> dict[str, Any]:
    nulls = {f"null: {name}": estimate for name, estimate in comparison["nulls"].items()}
    return {
        "measure": comparison["measure"],
        **comparison["results"],
        **nulls,
        "verdict": comparison["verdict"],
    }

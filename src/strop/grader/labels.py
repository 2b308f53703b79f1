"""What is known of graded runs from elsewhere: truths, first wrong steps, the tools that each step called."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from strop.errors import InputError
from strop.grader.baselines import RunScore
from strop.grader.grade import Graded
from strop.trajectory.fields import Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """One run. `given` names the fields that its line had, for a null first_wrong_step is also a word.

    `calls` are the tools that each assistant message called, from 0, where the line had messages.
    """

    given: frozenset[str]
    truth: float | None
    first_wrong_step: int | None
    calls: tuple[tuple[str, ...], ...] | None = None


def read_labels(lines: Iterable[tuple[str, Mapping[str, Any]]]) -> dict[str, Label]:
    """Labels by trajectory id from lines (place, object). A trajectory file is one. Raises InputError for a
    line without `trajectory_id`, a truth outside [0, 1], and a run that is there twice."""
    labels: dict[str, Label] = {}
    for where, line in lines:
        place = Place(where)
        run = place.identifier(line, "trajectory_id")
        if run is None:
            place.refuse("no trajectory_id; name the run that the truth is of")
        if run in labels:
            place.refuse(f"{run} is there twice; keep one line of each run")
        labels[run] = _label(place, line)
    return labels


def labelled(graded: Sequence[Graded], labels: Mapping[str, Label]) -> list[Graded]:
    """The runs with the truths that the labels give; what they do not give stays. Raises InputError where
    not one run is named."""
    if graded and not any(g.trajectory_id in labels for g in graded):
        raise InputError(f"none of {len(labels)} truths is of a graded run; compare their trajectory_id")
    return [_with(g, labels[g.trajectory_id]) if g.trajectory_id in labels else g for g in graded]


def tool_call_scores(graded: Sequence[Graded], labels: Mapping[str, Label]) -> dict[str, RunScore]:
    """`fewer tool calls` and `more tool calls`, where they can be counted: from the labels' messages, or
    else as the steps in which a tool is named. Nothing where neither is there for all graded runs."""
    counts: dict[str, int] = {}
    for g in (g for g in graded if g.steps):
        label = labels.get(g.trajectory_id)
        if label is not None and label.calls is not None:
            counts[g.trajectory_id] = sum(map(len, label.calls))
        elif all(s.spans for s in g.steps):
            counts[g.trajectory_id] = sum("tool_name" in s.spans for s in g.steps)
        else:
            return {}
    return {
        "fewer tool calls": lambda g: -float(counts[g.trajectory_id]),
        "more tool calls": lambda g: float(counts[g.trajectory_id]),
    }


def _with(graded: Graded, label: Label) -> Graded:
    if "truth" in label.given:
        graded = replace(graded, truth=label.truth)
    if "first_wrong_step" in label.given:
        graded = replace(graded, first_wrong_step=label.first_wrong_step)
    return graded


def _label(place: Place, line: Mapping[str, Any]) -> Label:
    truth = place.number(line, "truth")
    if truth is not None and not 0 <= truth <= 1:
        place.refuse(f"truth {truth}; give a number between 0 and 1")
    spoken = [m for m in place.objects(line, "messages") if m.get("role") == "assistant"]
    return Label(
        given=frozenset(line) & {"truth", "first_wrong_step"},
        truth=truth,
        first_wrong_step=place.whole(line, "first_wrong_step"),
        calls=tuple(_tools(message) for message in spoken) if "messages" in line else None,
    )


def _tools(message: Mapping[str, Any]) -> tuple[str, ...]:
    calls = message.get("tool_calls") or ()
    return tuple(str((call.get("function") or {}).get("name")) for call in calls)

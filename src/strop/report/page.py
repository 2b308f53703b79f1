"""The report: one self-contained HTML file of a run. Lays out what was measured elsewhere."""

from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from strop.report import figures, wording
from strop.report.content import Content, ShownTrajectory, read
from strop.store.run import Run
from strop.trajectory.atomic import replacing

WIDTHS = {"wide": 1000, "narrow": 340}


def render(run: Run) -> Path:
    """Write report.html into the run directory and return its path.

    One file, no script, no request to anywhere; text of agents and judges is escaped. What the run
    lacks is shown as "not measured". Raises InputError for a broken file of the run, StropError
    where the disk refuses.
    """
    path = run.path / "report.html"
    text = html(read(run))
    with replacing(path) as file:
        file.write(text.encode("utf-8", "replace"))
    return path


def html(content: Content) -> str:
    """The page as text."""
    template = _environment().get_template("report.html.j2")
    return template.render(
        run=content,
        summary=content.summary,
        style=Markup(files("strop.report").joinpath("templates/report.css").read_text(encoding="utf-8")),
        curves={name: _curve(content, width) for name, width in WIDTHS.items()},
        time_bar=_svg(figures.shares(list(content.seconds.items()), "time by stage")),
        grade_columns=_grade_columns(content.trajectory),
    )


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("strop.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        hundredths=wording.hundredths,
        value=wording.value,
        share=wording.share,
        interval=wording.interval,
        basis=wording.basis,
        headline=wording.headline,
        duration=wording.duration,
        words=wording.words,
    )
    environment.tests["measured"] = wording.measured
    environment.globals.update(whisker=_whisker, strength=figures.strength)
    return environment


def _svg(text: str) -> Markup:
    # figures.py escapes its labels, so its text may pass unescaped.
    return Markup(text)


def _whisker(estimate: Mapping[str, Any] | None, rule: float | None = None, kind: str = "") -> Markup:
    if not estimate or any(estimate.get(key) is None for key in ("estimate", "low", "high")):
        return Markup("")
    return _svg(
        figures.whisker(estimate["estimate"], estimate["low"], estimate["high"], rule=rule, kind=kind)
    )


def _grade_columns(shown: ShownTrajectory | None) -> Markup | None:
    if shown is None:
        return None
    steps = shown.graded.steps
    wrong = [place for place, s in enumerate(steps) if s.index == shown.graded.first_wrong_step]
    label = "grades by step: " + ", ".join(f"{s.index}: {s.grade:+.2f}" for s in steps)
    return _svg(figures.columns([s.grade for s in steps], wrong[0] if wrong else None, label))


def _curve(content: Content, width: int) -> Markup | None:
    lines = content.summary.get("curve") or content.steps
    truth, score = _points(lines, ("truth",)), _points(lines, ("score", "judge_score"))
    marks, ends = _heldout(content.summary, len(lines))
    marks += _between(content.evaluations, len(lines))
    if not (truth or score or marks):
        return None
    ticks = _ticks(lines, width) + ends
    canvas = figures.Canvas(
        width=width, height=320 if width > 500 else 240, first=-1.0, last=float(len(lines))
    )
    series = [figures.Series(name="judge", points=score), figures.Series(name="truth", points=truth)]
    label = f"Truth and judge score over {len(lines)} training steps; the numbers stand in the table below."
    return _svg(figures.curve(series, [figures.Series(name="truth", points=marks)], ticks, canvas, label))


def _points(lines: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[figures.Point]:
    points = []
    for place, line in enumerate(lines):
        given = next((line[name] for name in names if line.get(name) is not None), None)
        if (value := _number(given)) is not None:
            low, high = (given.get("low"), given.get("high")) if isinstance(given, Mapping) else (None, None)
            points.append(figures.Point(x=float(place), y=value, low=low, high=high))
    return points


def _number(given: Any) -> float | None:
    """The number of an estimate, of a {"mean", "n"} object, or as it is."""
    if isinstance(given, Mapping):
        given = given.get("estimate", given.get("mean"))
    return float(given) if isinstance(given, int | float) else None


def _heldout(summary: Mapping[str, Any], n: int) -> tuple[list[figures.Point], list[figures.Tick]]:
    points, ticks = [], []
    for name, x in (("before", -1.0), ("after", float(n))):
        estimate = summary.get(f"truth_{name}") or {}
        if (value := _number(estimate)) is not None:
            points.append(figures.Point(x=x, y=value, low=estimate.get("low"), high=estimate.get("high")))
            ticks.append(figures.Tick(x=x, label=name))
    return points, ticks


def _between(evaluations: Sequence[Mapping[str, Any]], n: int) -> list[figures.Point]:
    """Held-out truth while training: after k steps a mark stands between the attempts of k - 1 and k."""
    found = []
    for line in evaluations:
        if 0 < line["steps"] < n and (value := _number(line["truth"])) is not None:
            low, high = line["truth"]["low"], line["truth"]["high"]
            found.append(figures.Point(x=line["steps"] - 0.5, y=value, low=low, high=high))
    return found


def _ticks(lines: Sequence[Mapping[str, Any]], width: int) -> list[figures.Tick]:
    every = -(-len(lines) // (12 if width > 500 else 5)) or 1
    last = len(lines) - 1 if width > 500 else len(lines) - 2
    return [
        figures.Tick(x=float(place), label=str(line.get("step", place)))
        for place, line in enumerate(lines)
        if place % every == 0 and (width > 500 or 0 < place <= last)
    ]

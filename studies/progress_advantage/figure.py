"""The study's figures: six things that change, and the uses beside their nulls."""

from collections.abc import Callable, Mapping, Sequence
from html import escape

from strop.report.figures import Canvas, Point, Series, Tick, curve
from strop.stats.intervals import Estimate
from studies.progress_advantage.cases import Row
from studies.progress_advantage.results import Results, Uses
from studies.progress_advantage.scores import CENTRED, GRADE, LOGPROB, STEP_VALUE

WIDTH, WIDE, HEIGHT, HEAD, GAP = 330, 495, 250, 40, 34
STYLE = """
text{font:12px system-ui,sans-serif;fill:#6a665d}.title{font-weight:600;fill:#1f1e1b}
.paper{fill:#fbfaf6}.rule{stroke:#dfdbd1}.line{fill:none;stroke-width:2}.band{opacity:.15}.stem{stroke-width:2}
.line.step{stroke:#0b6e69}.dot.step,.band.step,text.step{fill:#0b6e69}
.line.sum{stroke:#2c6fb3}.dot.sum,.band.sum,text.sum,.mark.sum{fill:#2c6fb3}.stem.sum{stroke:#2c6fb3}
.line.centred{stroke:#b0641a;stroke-dasharray:6 4}.stem.centred{stroke:#b0641a}
.dot.centred,.band.centred,text.centred,.mark.centred{fill:#b0641a}
.line.logprob{stroke:#8b867b;stroke-dasharray:2 3}.stem.null{stroke:#8b867b}
.dot.logprob,.band.logprob,text.logprob,.mark.null{fill:#8b867b}
.mark.truth{fill:#0b6e69}.stem.truth{stroke:#0b6e69}
"""
LEGEND = (
    ("step", "step: grade with the optimal advantage"),
    ("sum", "attempt: sum of grades with success"),
    ("centred", "attempt: sum of centred grades"),
    ("logprob", "attempt: policy log-prob"),
)
READ: Mapping[str, Callable[[Row], Estimate]] = {
    "step": lambda row: row.step,
    "sum": lambda row: row.attempt[GRADE],
    "centred": lambda row: row.attempt[CENTRED],
    "logprob": lambda row: row.attempt[LOGPROB],
}
PANELS = (
    ("chance", "share of transitions that chance decides"),
    ("policy gradient", "share of the objective reached in training"),
    ("beta", "beta of the training"),
    ("clipping", "updates by clipping alone"),
    ("reference", "noise in the reference's logits"),
    ("noise", "noise in the policy's logits"),
)
SHORT = {
    GRADE: "PA",
    CENTRED: "centred",
    STEP_VALUE: "Q−V",
    LOGPROB: "log π",
    "reference log-prob": "log ref",
    "fewer steps": "short",
    "random": "random",
    "oracle": "oracle",
    "uniform guess": "uniform",
    "longest step": "longest",
    "first step": "first",
    "last step": "last",
}


def sweeps_figure(results: Results) -> str:
    """A stand-alone SVG of six panels, two rows."""
    panels = [_panel(results.sweeps[name], label) for name, label in PANELS]
    keys, x = [], 40
    for name, words in LEGEND:
        keys.append(f'<text class="{name}" x="{x}" y="20">● {escape(words)}</text>')
        x += 36 + int(6.2 * len(words))
    return _sheet("".join(keys), [label for _, label in PANELS], panels, WIDTH)


def uses_figure(uses: Uses) -> str:
    """A stand-alone SVG: select, predict and attribute, every score with its interval."""
    shown = (
        ("success of the pick among 8", uses.select.results),
        ("right order of success and failure, one start", uses.order.results),
        ("AUROC of success, all starts", uses.predict.results),
        ("first bad step named", uses.first.results),
    )
    panels = [_marks(estimates, title) for title, estimates in shown]
    words = f"{uses.name} worlds, attempts of the optimum; bars: 95 % intervals"
    key = f'<text x="40" y="20">{escape(words)}</text>'
    return _sheet(key, [title for title, _ in shown], panels, WIDE)


def _sheet(key: str, titles: Sequence[str], panels: Sequence[str], each: int) -> str:
    columns = 3 * WIDTH // each
    rows = -(-len(panels) // columns)
    width, height = 3 * WIDTH, HEAD + rows * (HEIGHT + GAP)
    placed = []
    for i, (title, panel) in enumerate(zip(titles, panels, strict=True)):
        x, y = each * (i % columns), HEAD + (HEIGHT + GAP) * (i // columns)
        placed.append(f'<text class="title" x="{x + 40}" y="{y + 14}">{escape(title)}</text>')
        placed.append(panel.replace("<svg ", f'<svg x="{x}" y="{y + 22}" ', 1))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}"><style>{STYLE}</style><rect class="paper" width="{width}" height="{height}"/>'
        f"{key}{''.join(placed)}</svg>\n"
    )


def _panel(rows: Sequence[Row], label: str) -> str:
    # Rows that share a place with the one before are other kinds, shown in the table only.
    line = [row for i, row in enumerate(rows) if i == 0 or row.at > rows[i - 1].at]
    series = [Series(name=name, points=_points(line, read)) for name, read in READ.items()]
    ticks = [Tick(x=row.at, label=_tick(row)) for row in _apart(line)]
    canvas = Canvas(width=WIDTH, height=HEIGHT, first=line[0].at, last=line[-1].at)
    return curve(series, [], ticks, canvas, f"Correlations by {label}; below 0 drawn at 0")


def _apart(line: Sequence[Row]) -> list[Row]:
    """Rows whose labels have room beside the last one's."""
    span = line[-1].at - line[0].at or 1.0
    kept: list[Row] = []
    for row in line:
        if not kept or (row.at - kept[-1].at) / span > 0.1:
            kept.append(row)
    return kept


def _tick(row: Row) -> str:
    kind, *rest = row.label.split()
    if rest and rest[0].startswith("step"):
        return f"{row.at:.2f}"
    return rest[0] if kind == "noise" else kind


def _points(rows: Sequence[Row], read: Callable[[Row], Estimate]) -> list[Point]:
    return [_point(row.at, read(row)) for row in rows if read(row).estimate is not None]


def _point(x: float, e: Estimate) -> Point:
    low, high = (None if v is None else min(max(v, 0.0), 1.0) for v in (e.low, e.high))
    return Point(x=x, y=min(max(e.estimate or 0.0, 0.0), 1.0), low=low, high=high)


def _marks(estimates: Mapping[str, Estimate], title: str) -> str:
    shown = [(SHORT[name], _kind(name), e) for name, e in estimates.items() if name in SHORT]
    marks = [Series(name=kind, points=[_point(i, e)]) for i, (_, kind, e) in enumerate(shown)]
    ticks = [Tick(x=i, label=name) for i, (name, _, _) in enumerate(shown)]
    canvas = Canvas(width=WIDE, height=HEIGHT, first=-0.5, last=len(shown) - 0.5)
    return curve([], marks, ticks, canvas, title)


def _kind(name: str) -> str:
    return {GRADE: "sum", CENTRED: "centred", STEP_VALUE: "truth", "oracle": "truth"}.get(name, "null")

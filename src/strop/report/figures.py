"""Figures as SVG text, from numbers alone. Colours come from the page's style sheet by class name.

Labels are escaped. Figures that repeat a table's numbers are hidden from screen readers; the others
carry `role="img"` and a label that says in words what they show.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A value in [0, 1] at a place on the axis, with its interval where there is one."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Points joined by a line, with a band through their intervals; `name` is a class of the style sheet."""

    name: str
    points: Sequence[Point]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """A label under the horizontal axis."""

    x: float
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Canvas:
    """Size and margins of a figure, in pixels, and the ends of its horizontal axis."""

    width: int
    height: int
    first: float
    last: float
    left: int = 40
    right: int = 16
    top: int = 12
    bottom: int = 30

    def x(self, value: float) -> float:
        span = self.last - self.first or 1.0
        return self.left + (self.width - self.left - self.right) * (value - self.first) / span

    def y(self, value: float) -> float:
        return self.top + (self.height - self.top - self.bottom) * (1.0 - value)


def curve(
    series: Sequence[Series], marks: Sequence[Series], ticks: Sequence[Tick], canvas: Canvas, label: str
) -> str:
    """Lines with bands, and `marks` (points with their own whiskers, not joined), over [0, 1].

    Gaps where a step has no number are for the caller to leave: points are joined as they come.
    """
    inside = [_rules(canvas), _axis(ticks, canvas)]
    inside += [_band(s, canvas) for s in series]
    inside += [_line(s, canvas) for s in series]
    inside += [_mark(point, s.name, canvas) for s in marks for point in s.points]
    size = f'viewBox="0 0 {canvas.width} {canvas.height}" width="{canvas.width}" height="{canvas.height}"'
    return f'<svg {size} role="img" aria-label="{escape(label)}">{"".join(inside)}</svg>'


def whisker(estimate: float, low: float, high: float, *, rule: float | None = None, kind: str = "") -> str:
    """A dot with its interval on an axis from 0 to 1 that fills its cell; `rule` draws a reference line.

    Values outside [0, 1] are drawn at the edge. Repeats a table row, so it is hidden from readers.
    """
    at, start, end = (_percent(v) for v in (estimate, low, high))
    reference = "" if rule is None else _segment("rule", _percent(rule), _percent(rule), "0", "20")
    return (
        f'<svg class="whisker {escape(kind)}" height="20" aria-hidden="true">'
        f"{_segment('ground', '0', '100%', '10', '10')}{reference}{_segment('span', start, end, '10', '10')}"
        f'<circle cx="{at}" cy="10" r="4.5"/></svg>'
    )


def shares(parts: Sequence[tuple[str, float]], label: str) -> str:
    """One bar cut into parts by their values (>= 0); part i has class `part-i`, i from 0 and below 8.

    Parts of 0 are left out. No positive value gives an empty bar.
    """
    total = sum(value for _, value in parts)
    bars, start = [], 0.0
    for number, (name, value) in enumerate(parts):
        if value > 0:
            width = value / total
            place = f'x="{_percent(start)}" width="{_percent(width)}" height="28"'
            title = f"<title>{escape(name)}: {width:.0%}</title>"
            bars.append(f'<rect class="part-{number % 8}" {place}>{title}</rect>')
            start += width
    return f'<svg class="shares" height="28" role="img" aria-label="{escape(label)}">{"".join(bars)}</svg>'


def columns(grades: Sequence[float], wrong: int | None, label: str) -> str:
    """One column a step, up from the middle for positive grades and down for negative ones.

    Heights are relative to the largest magnitude; all zero draws only the base line. `wrong` is the
    place of the first wrong step, marked by a triangle.
    """
    slot, height, middle = 30, 112, 52
    width = max(len(grades), 1) * slot
    drawn = [_column(i, g, strength(g, grades), wrong == i, slot, middle) for i, g in enumerate(grades)]
    return (
        f'<svg class="columns" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
        f'aria-label="{escape(label)}"><line class="rule" x1="0" x2="{width}" y1="{middle}" y2="{middle}"/>'
        f"{''.join(drawn)}</svg>"
    )


def strength(grade: float, grades: Sequence[float]) -> float:
    """|grade| relative to the largest magnitude among `grades`, in [0, 1]; 0 where all are 0."""
    largest = max((abs(g) for g in grades), default=0.0)
    return abs(grade) / largest if largest > 0 else 0.0


def _column(place: int, grade: float, share: float, wrong: bool, slot: int, middle: int) -> str:
    size = 46 * share
    top, x = (middle - size if grade > 0 else float(middle)), place * slot
    sign = "up" if grade > 0 else "down"
    mark = f'<path class="wrong" d="M{x + slot / 2 - 5:.1f} 111h10l-5-8z"/>' if wrong else ""
    return (
        f'<rect class="{sign}" x="{x + 6}" y="{top:.1f}" width="{slot - 12}" height="{size:.1f}">'
        f"<title>step {place}: {grade:+.3f}</title></rect>{mark}"
    )


def _rules(canvas: Canvas) -> str:
    drawn = []
    for value in (0.0, 0.25, 0.5, 0.75, 1.0):
        y, right = canvas.y(value), canvas.width - canvas.right
        drawn.append(_segment("rule", str(canvas.left), str(right), f"{y:.1f}", f"{y:.1f}"))
        if value in (0.0, 0.5, 1.0):
            place = f'x="{canvas.left - 8}" y="{y + 4:.1f}"'
            drawn.append(f'<text class="tick" {place} text-anchor="end">{value:g}</text>')
    return "".join(drawn)


def _axis(ticks: Sequence[Tick], canvas: Canvas) -> str:
    y = canvas.height - canvas.bottom + 20
    return "".join(
        f'<text class="tick" x="{canvas.x(t.x):.1f}" y="{y}" text-anchor="middle">{escape(t.label)}</text>'
        for t in ticks
    )


def _band(series: Series, canvas: Canvas) -> str:
    edges = [
        (canvas.x(p.x), p.low, p.high) for p in series.points if p.low is not None and p.high is not None
    ]
    if len(edges) < 2:
        return ""
    upper = [f"{x:.1f},{canvas.y(high):.1f}" for x, _, high in edges]
    lower = [f"{x:.1f},{canvas.y(low):.1f}" for x, low, _ in reversed(edges)]
    return f'<polygon class="band {escape(series.name)}" points="{" ".join(upper + lower)}"/>'


def _line(series: Series, canvas: Canvas) -> str:
    places = [(canvas.x(p.x), canvas.y(p.y)) for p in series.points]
    name = escape(series.name)
    dots = "".join(f'<circle class="dot {name}" cx="{x:.1f}" cy="{y:.1f}" r="2.5"/>' for x, y in places)
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    return f'<polyline class="line {name}" points="{path}"/>{dots}'


def _mark(point: Point, name: str, canvas: Canvas) -> str:
    x, y, kind = canvas.x(point.x), canvas.y(point.y), escape(name)
    stem = ""
    if point.low is not None and point.high is not None:
        ends = f"{canvas.y(point.low):.1f}", f"{canvas.y(point.high):.1f}"
        stem = _segment(f"stem {kind}", f"{x:.1f}", f"{x:.1f}", *ends)
    return f'{stem}<circle class="mark {kind}" cx="{x:.1f}" cy="{y:.1f}" r="5.5"/>'


def _segment(kind: str, x1: str, x2: str, y1: str, y2: str) -> str:
    return f'<line class="{kind}" x1="{x1}" x2="{x2}" y1="{y1}" y2="{y2}"/>'


def _percent(share: float) -> str:
    return f"{100 * min(max(share, 0.0), 1.0):.2f}%"

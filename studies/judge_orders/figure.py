"""The study's figure: tau against the position effect for two sizes, and tau against reliability."""

from collections.abc import Callable, Sequence
from html import escape

from strop.report.figures import Canvas, Point, Series, Tick, curve
from strop.stats.intervals import Estimate
from studies.judge_orders.results import Cell, Curve, Results

WIDTH, HEIGHT = 330, 260
HEAD = 58
STYLE = """
text{font:12px system-ui,sans-serif;fill:#6a665d}.title{font-weight:600;fill:#1f1e1b}
.paper{fill:#fbfaf6}.rule{stroke:#dfdbd1}.line{fill:none;stroke-width:2}.band{opacity:.15}
.line.default{stroke:#0b6e69}.dot.default,.band.default,text.default{fill:#0b6e69}
.line.mirrored{stroke:#2c6fb3}.dot.mirrored,.band.mirrored,text.mirrored{fill:#2c6fb3}
.line.random{stroke:#b0641a;stroke-dasharray:6 4}.dot.random,.band.random,text.random{fill:#b0641a}
.line.fixed{stroke:#8b867b;stroke-dasharray:2 3}.dot.fixed,.band.fixed,text.fixed{fill:#8b867b}
"""
LEGEND = (
    ("default", "default (order, reverse, two more where they disagree)"),
    ("mirrored", "order and reverse"),
    ("random", "two random orders"),
    ("fixed", "one order twice"),
)


def figure(results: Results) -> str:
    """A stand-alone SVG of three panels."""
    sizes = sorted({cell.setting.attempts for cell in results.cells})
    panels = [_by_strength(results, n) for n in sizes]
    mixed = next(c for c in results.curves if c.setting.noise is None and c.setting.attempts == sizes[-1])
    panels.append(_by_reliability(mixed))
    titles = [f"tau by position effect, groups of {n}" for n in sizes]
    titles.append(f"tau by reliability of two calls, groups of {sizes[-1]}")
    width, height = WIDTH * len(panels), HEAD + HEIGHT
    placed = [
        f'<text class="title" x="{WIDTH * i + 40}" y="46">{escape(title)}</text>'
        + panel.replace("<svg ", f'<svg x="{WIDTH * i}" y="{HEAD}" ', 1)
        for i, (panel, title) in enumerate(zip(panels, titles, strict=True))
    ]
    keys, x = [], 40
    for name, words in LEGEND:
        keys.append(f'<text class="{name}" x="{x}" y="20">● {escape(words)}</text>')
        x += 40 + 6 * len(words)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}"><style>{STYLE}</style><rect class="paper" width="{width}" height="{height}"/>'
        f"{''.join(keys)}{''.join(placed)}</svg>\n"
    )


def _by_strength(results: Results, attempts: int) -> str:
    alike = [c for c in results.cells if c.setting.attempts == attempts and c.setting.effect == "linear"]
    cells = [cell for cell in alike if cell.setting.strength >= 0]
    plans = {"fixed": "fixed x2", "random": "random x2", "mirrored": "mirrored x2", "default": "default"}
    series = [Series(name=name, points=_points(cells, plan)) for name, plan in plans.items()]
    strengths = [cell.setting.strength for cell in cells]
    ticks = [Tick(x=s, label=f"{s:g}") for s in strengths]
    label = f"Kendall's tau with truth by strength of the position effect, groups of {attempts}"
    return curve(series, [], ticks, _canvas(strengths), label)


def _points(cells: Sequence[Cell], plan: str) -> list[Point]:
    return _drawn([(cell.setting.strength, cell.tau[plan]) for cell in cells])


def _by_reliability(found: Curve) -> str:
    ways: dict[str, Callable[[int], Estimate]] = {
        "mirrored": lambda i: found.bins[i].two_calls,
        "default": lambda i: found.bins[i].default,
    }
    series = [
        Series(name=name, points=_drawn([(one.reliability, of(i)) for i, one in enumerate(found.bins)]))
        for name, of in ways.items()
    ]
    ticks = [Tick(x=x, label=f"{x:g}") for x in (0.2, 0.4, 0.6, 0.8, 1.0)]
    return curve(series, [], ticks, _canvas([0.2, 1.0]), "Kendall's tau with truth by reliability")


def _drawn(values: Sequence[tuple[float, Estimate]]) -> list[Point]:
    return [
        Point(x=x, y=max(e.estimate, 0.0), low=max(e.low, 0.0), high=e.high)
        for x, e in values
        if e.estimate is not None and e.low is not None
    ]


def _canvas(values: Sequence[float]) -> Canvas:
    return Canvas(width=WIDTH, height=HEIGHT, first=min(values), last=max(values))

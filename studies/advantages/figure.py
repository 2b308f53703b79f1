"""The study's figure: true quality by judge calls in three worlds, and by a position effect's strength."""

from html import escape

from strop.report.figures import Canvas, Point, Series, Tick, curve
from strop.seeds import generator
from strop.stats.intervals import Estimate, cluster_mean
from studies.advantages.learner import CALLS, UPDATES
from studies.advantages.results import PLACES, REFERENCE, Family, Results
from studies.advantages.worlds import Array

WIDTH, HEIGHT, HEAD = 330, 260, 58
ATTEMPTS = 8
SHOWN = ("near-ties", "undecidable", "uneven noise")
STYLE = """
text{font:12px system-ui,sans-serif;fill:#6a665d}.title{font-weight:600;fill:#1f1e1b}
.paper{fill:#fbfaf6}.rule{stroke:#dfdbd1}.line{fill:none;stroke-width:2}.band{opacity:.15}
.line.floor{stroke:#0b6e69}.dot.floor,.band.floor,text.floor{fill:#0b6e69}
.line.std{stroke:#2c6fb3;stroke-dasharray:6 4}.dot.std,.band.std,text.std{fill:#2c6fb3}
.line.none{stroke:#b0641a;stroke-dasharray:2 3}.dot.none,.band.none,text.none{fill:#b0641a}
.line.one{stroke:#8b867b}.dot.one,.band.one,text.one{fill:#8b867b}
"""
LINES = {"floor": REFERENCE, "std": "std", "none": "none", "one": "one order: std"}
WORDS = {
    "floor": "two orders, std, floor from the group's own noise",
    "std": "two orders, std",
    "none": "two orders, none",
    "one": "one order and twice the groups, std",
}


def figure(results: Results) -> str:
    """A stand-alone SVG of four panels."""
    panels = [(f"share of the best by judge calls: {w}", _by_calls(results, w)) for w in SHOWN]
    panels.append(("by what the first place has over the last", _by_place(results.places)))
    width, height = WIDTH * len(panels), HEAD + HEIGHT
    placed = [
        f'<text class="title" x="{WIDTH * i + 40}" y="46">{escape(title)}</text>'
        + panel.replace("<svg ", f'<svg x="{WIDTH * i}" y="{HEAD}" ', 1)
        for i, (title, panel) in enumerate(panels)
    ]
    keys, x = [], 40
    for name, words in WORDS.items():
        keys.append(f'<text class="{name}" x="{x}" y="20">● {escape(words)}</text>')
        x += 40 + 6 * len(words)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}"><style>{STYLE}</style><rect class="paper" width="{width}" height="{height}"/>'
        f"{''.join(keys)}{''.join(placed)}</svg>\n"
    )


def _by_calls(results: Results, world: str) -> str:
    found = results.sizes[ATTEMPTS]
    looks = len(found.cells[REFERENCE][world].shares)
    calls = [CALLS * UPDATES * (look + 1) / looks for look in range(looks)]
    series = []
    for name, setting in LINES.items():
        shares = found.cells[setting][world].shares
        series.append(Series(name=name, points=[_point(c, s) for c, s in zip(calls, shares, strict=True)]))
    ticks = [Tick(x=calls[i], label=f"{calls[i]:g}") for i in range(1, looks, 2)]
    canvas = Canvas(width=WIDTH, height=HEIGHT, first=0.0, last=calls[-1])
    return curve(series, [], ticks, canvas, f"share of the best quality by judge calls, {world}")


def _by_place(found: Family) -> str:
    series = [
        Series(name=name, points=[_point(p, found.cells[LINES[name]][f"{p:g}"].shares[-1]) for p in PLACES])
        for name in ("floor", "one")
    ]
    ticks = [Tick(x=place, label=f"{place:g}") for place in PLACES]
    canvas = Canvas(width=WIDTH, height=HEIGHT, first=PLACES[0], last=PLACES[-1])
    return curve(series, [], ticks, canvas, "share of the best quality by strength of the position effect")


def _point(x: float, values: Array) -> Point:
    found: Estimate = cluster_mean(values, range(len(values)), generator(0, "bootstrap", "figure"))
    low = None if found.low is None else max(found.low, 0.0)
    return Point(x=x, y=max(found.estimate or 0.0, 0.0), low=low, high=found.high)

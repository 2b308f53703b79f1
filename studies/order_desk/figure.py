"""The study's figure: the three uses, each score with its interval in each training."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from strop.report.figures import Canvas, Point, Series, Tick, curve
from studies.order_desk.results import TOGETHER, WRONG, Results
from studies.order_desk.tables import estimates

WIDTH, HEIGHT, HEAD, GAP = 980, 240, 34, 34
STYLE = """
text{font:12px system-ui,sans-serif;fill:#6a665d}.title{font-weight:600;fill:#1f1e1b}
.paper{fill:#fbfaf6}.rule{stroke:#dfdbd1}.stem{stroke-width:2}
.mark.ours{fill:#0b6e69}.stem.ours{stroke:#0b6e69}.mark.wrong{fill:#b0641a}.stem.wrong{stroke:#b0641a}
.mark.null{fill:#8b867b}.stem.null{stroke:#8b867b}.mark.judge{fill:#2c6fb3}.stem.judge{stroke:#2c6fb3}
"""
PANELS = (
    ("predict", "AUROC of success"),
    ("select", "truth of the attempt picked"),
    ("attribute", "first wrong step named"),
)
SHORT: Mapping[str, tuple[str, str]] = {
    "progress advantage (sum)": ("PA", "ours"),
    "largest sum": ("PA", "ours"),
    "lowest step": ("PA", "ours"),
    "progress advantage, centred (sum)": ("centred", "ours"),
    "lowest step, centred": ("centred", "ours"),
    WRONG: ("wrong ref", "wrong"),
    "policy log-prob": ("log π", "null"),
    "reference log-prob": ("log ref", "null"),
    "low perplexity": ("−ppl", "null"),
    "highest perplexity": ("ppl", "null"),
    "low entropy": ("−entropy", "null"),
    "highest entropy": ("entropy", "null"),
    "Self-Certainty": ("certainty", "null"),
    "DeepConf": ("DeepConf", "null"),
    "fewer steps": ("short", "null"),
    "more steps": ("long", "null"),
    "longest step": ("longest", "null"),
    "last step": ("last", "null"),
    "uniform guess": ("uniform", "null"),
    "random": ("random", "null"),
    TOGETHER: ("judge", "judge"),
    "oracle": ("oracle", "judge"),
}
APART = 0.22


def figure(results: Results) -> str:
    """A stand-alone SVG of three panels, one under the other."""
    panels = []
    for row, (use, title) in enumerate(PANELS):
        y = HEAD + row * (HEIGHT + GAP)
        panel = _panel([getattr(one.warm, use) for one in results.measured], title)
        panels.append(f'<text class="title" x="40" y="{y + 14}">{escape(title)}</text>')
        panels.append(panel.replace("<svg ", f'<svg y="{y + 20}" ', 1))
    height = HEAD + len(PANELS) * (HEIGHT + GAP)
    marks = f"attempts of the warm start; a mark a training ({len(results.measured)} seeds)"
    words = f"{marks}; bars: 95 % intervals over scenarios"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}"><style>{STYLE}</style><rect class="paper" width="{WIDTH}" height="{height}"/>'
        f'<text x="40" y="20">{escape(words)}</text>{"".join(panels)}</svg>\n'
    )


def _panel(found: Sequence[Mapping[str, Any]], title: str) -> str:
    names = [name for name in SHORT if any(name in estimates(one) for one in found)]
    marks = [
        Series(name=SHORT[name][1], points=[_point(place + APART * (number - (len(found) - 1) / 2), e)])
        for place, name in enumerate(names)
        for number, one in enumerate(found)
        if (e := estimates(one).get(name)) is not None and e["estimate"] is not None
    ]
    ticks = [Tick(x=place, label=SHORT[name][0]) for place, name in enumerate(names)]
    canvas = Canvas(width=WIDTH, height=HEIGHT, first=-0.5, last=len(names) - 0.5)
    return curve([], marks, ticks, canvas, title)


def _point(x: float, e: Mapping[str, Any]) -> Point:
    return Point(x=x, y=e["estimate"], low=e["low"], high=e["high"])

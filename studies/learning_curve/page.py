"""The study's page, its figure and its JSON."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from strop.report.figures import Canvas, Point, Series, Tick, curve
from strop.stats.intervals import Estimate
from studies.learning_curve.results import Curves, Gap, Results
from studies.learning_curve.task import ATTEMPTS, GROUPS, LENGTH

STYLE = """
text{font:12px system-ui,sans-serif;fill:#6a665d}.paper{fill:#fbfaf6}.rule{stroke:#dfdbd1}
.line{fill:none;stroke-width:2}.band{opacity:.15}
.line.ours{stroke:#0b6e69}.dot.ours,.band.ours,text.ours{fill:#0b6e69}
.line.theirs{stroke:#b0641a;stroke-dasharray:6 4}.dot.theirs,.band.theirs,text.theirs{fill:#b0641a}
.line.slower{stroke:#8b867b;stroke-dasharray:2 3}.dot.slower,.band.slower,text.slower{fill:#8b867b}
"""
WIDTH, HEIGHT, HEAD = 620, 320, 34


def to_markdown(results: Results) -> str:
    """The page."""
    setting, seeds = results.setting, len(results.ours)
    theirs, slower = results.gaps(results.theirs), results.gaps(results.slower)
    agree = all(gap.within_spread for gap in theirs)
    seen = [gap for gap in slower if not gap.within_spread]
    return f"""# Learning curves beside TRL's

Rewritten by `python -m studies.learning_curve --peer-python TRL/bin/python`. The same tiny random Llama (2
layers, 64 wide, a vocabulary of letters) is trained by strop's loop and by the GRPOTrainer of TRL
{results.peer_version} to write the letter a: the reward is the number of a's in a reply of at most
{LENGTH} letters, divided by {LENGTH}. Both start a seed from the same LoRA adapter (rank {setting.rank}), see
the same prompts in the same order, {GROUPS} a step with {ATTEMPTS} attempts each, and have the same loss and
optimizer: scores by the group's standard deviation, mean over tokens, clipping at {1 - setting.clip_low:g}
and {1 + setting.clip_high:g}, no KL, AdamW at {setting.learning_rate:g} with betas {setting.betas[0]:g} and
{setting.betas[1]:g}, gradient norm {setting.max_grad_norm:g}, {setting.steps} steps. What differs is chance:
each draws its replies itself. So seeds are independent on both sides, {seeds} on each, and differences have
Welch's 95 % interval.

A difference of nothing would be no finding if the comparison could see nothing. So a third curve is strop's
with a third of the learning rate.

![mean reward by step](learning-curve.svg)

## In short

- {_verdict(agree)}
- With a third of the rate {len(seen)} of {len(slower)} windows differ by more than that.

## TRL beside strop

{_table(theirs, "TRL")}
## A third of the learning rate beside the whole

{_table(slower, "a third")}
Within the spread: the interval holds 0 and the difference is below the larger standard deviation over seeds.
"""


def to_json(results: Results) -> dict[str, Any]:
    """All curves and differences."""
    return {
        "setting": asdict(results.setting),
        "trl": results.peer_version,
        "curves": {"ours": results.ours, "trl": results.theirs, "third": results.slower},
        "trl_minus_ours": [_plain(gap) for gap in results.gaps(results.theirs)],
        "third_minus_ours": [_plain(gap) for gap in results.gaps(results.slower)],
    }


def figure(results: Results) -> str:
    """A stand-alone SVG: means of the curves, bands of one standard deviation over seeds."""
    named = {"ours": results.ours, "theirs": results.theirs, "slower": results.slower}
    words = {"ours": "strop", "theirs": "TRL", "slower": "strop, a third of the rate"}
    steps = results.setting.steps
    panel = curve(
        [Series(name=name, points=_points(curves)) for name, curves in named.items()],
        [],
        [Tick(x=at, label=str(at)) for at in range(0, steps + 1, 10)],
        Canvas(width=WIDTH, height=HEIGHT, first=0, last=steps),
        "mean reward by step",
    )
    panel = panel.replace("<svg ", f'<svg y="{HEAD}" ', 1)
    keys = "".join(
        f'<text class="{name}" x="{50 + 120 * place}" y="20">● {text}</text>'
        for place, (name, text) in enumerate(words.items())
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEAD + HEIGHT}" width="{WIDTH}" '
        f'height="{HEAD + HEIGHT}"><style>{STYLE}</style><rect class="paper" width="{WIDTH}" '
        f'height="{HEAD + HEIGHT}"/>{keys}{panel}</svg>\n'
    )


def _points(curves: Curves) -> list[Point]:
    values = np.array(list(curves.values()))
    means, spread = values.mean(axis=0), values.std(axis=0, ddof=1)
    return [
        Point(x=step, y=float(m), low=max(0.0, float(m - s)), high=min(1.0, float(m + s)))
        for step, (m, s) in enumerate(zip(means, spread, strict=True))
    ]


def _verdict(agree: bool) -> str:
    if agree:
        return "In every window TRL's mean reward and strop's agree within their spread over seeds."
    return "TRL's mean reward and strop's do not agree within their spread over seeds in every window."


def _table(gaps: Sequence[Gap], other: str) -> str:
    lines = [
        f"| steps | strop: mean (sd) | {other}: mean (sd) | difference | within the spread |",
        "|---|---|---|---|---|",
    ]
    for gap in gaps:
        lines.append(
            f"| {gap.first} to {gap.last - 1} | {gap.ours:.3f} ({gap.ours_sd:.3f}) "
            f"| {gap.other:.3f} ({gap.other_sd:.3f}) | {_interval(gap.difference)} "
            f"| {'yes' if gap.within_spread else 'no'} |"
        )
    return "\n".join(lines) + "\n"


def _interval(found: Estimate) -> str:
    return f"{found.estimate:+.3f} ({found.low:+.3f} to {found.high:+.3f})"


def _plain(gap: Gap) -> dict[str, Any]:
    return {
        **{name: getattr(gap, name) for name in ("first", "last", "ours", "other", "ours_sd", "other_sd")},
        "difference": gap.difference.to_json(),
        "within_spread": gap.within_spread,
    }

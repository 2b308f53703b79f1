"""The study's page and its JSON."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from textwrap import fill
from typing import Any

from strop.judge.settings import JudgeSettings
from strop.stats.intervals import Estimate
from studies.judge_orders.results import CLAIM, DEFAULT, Cell, Curve, Results
from studies.judge_orders.simulate import NOISE, NOISE_FROM, NOISE_TO, STEP, Setting

MOST = JudgeSettings().max_orders
TWO_CALLS = ("two calls: mirrored - fixed", "two calls: mirrored - random")
INTRODUCTION = f"""# How often, and in which orders, a judge should look

Rewritten by `python -m studies.judge_orders`. Groups with a known truth, N(0, 1), are judged by a simulated
judge: truth, noise of {NOISE:g}, and what a place is worth, through a logistic curve, rounded to {STEP:g}.
*linear*: what standing first gains over standing last, in standard deviations of truth (below 0 the last are
favoured); *ends*: what the first and the last place gain over all between. Numbers are mean Kendall's tau-b
of the combined score with truth, {{groups}} groups a row, with 95 % bootstrap intervals by group.

Plans: *fixed* one order again and again, *random* a new one each call, *mirrored* strop's orders (order,
reverse, rotated by half, that reversed), *cyclic* rotated by a quarter each. *default* is strop's: order
and reverse, and the two further orders where their reliability is under `escalate_below` = {DEFAULT:g}, so
that it takes 2 to {MOST} calls. Scores are combined by their mean.

![tau by position effect and by reliability](judge-orders.svg)
"""


def to_markdown(results: Results) -> str:
    """The page."""
    parts = [
        INTRODUCTION.format(groups=results.groups),
        _summary(results),
        _two_calls(results),
        _claim(results),
        _same_cost(results),
        _four_calls(results),
        _escalation(results),
        _reliability(results),
    ]
    return "\n".join(parts)


def to_json(results: Results) -> dict[str, Any]:
    """One object; every estimate with its interval, n and method."""
    return {
        "name": "judge_orders",
        "groups": results.groups,
        "escalate_below": DEFAULT,
        "claim": CLAIM,
        "cells": [
            {
                "setting": asdict(cell.setting),
                "calls": cell.calls.to_json(),
                "tau": _estimates(cell.tau),
                "default_above": _estimates(cell.above),
            }
            for cell in results.cells
        ],
        "thresholds": [{**asdict(one), "gain": one.gain.to_json()} for one in results.thresholds],
        "reliability": [_curve_json(curve) for curve in results.curves],
    }


def _curve_json(curve: Curve) -> dict[str, Any]:
    bins = [
        {**asdict(one), "two_calls": one.two_calls.to_json(), "default": one.default.to_json()}
        for one in curve.bins
    ]
    return {"setting": asdict(curve.setting), "auroc": curve.auroc.to_json(), "bins": bins}


def _estimates(named: Mapping[str, Estimate]) -> dict[str, Any]:
    return {name: estimate.to_json() for name, estimate in named.items()}


def _summary(results: Results) -> str:
    linear = [cell for cell in results.cells if cell.setting.effect == "linear"]
    met = [cell for cell in linear if _verdict(cell) != "no"]
    missed = [cell for cell in linear if _verdict(cell) == "no"]
    even = [cell for cell in linear if _least(cell, TWO_CALLS) >= CLAIM]
    calls = [cell.calls.estimate or 0.0 for cell in met]
    spent = f", with {min(calls):.1f} to {max(calls):.1f} calls on average" if calls else ""
    lines = [
        f"- The default is {CLAIM:g} or more above two calls in one order and above two random ones at: "
        f"{_listed(met)}{spent}. It is not at: {_listed(missed)}.",
        f"- With two calls each, order and reverse alone are so at: {_listed(even)}.",
    ]
    lines += [
        f"- Where only the ends are favoured ({_listed([cell])}) order and reverse put the same attempts "
        "there twice: the bias stays, their reliability does not show it, and the default is "
        f"{_shown(cell.above['random, same calls'])} above as many random orders."
        for cell in results.cells
        if cell.setting.effect == "ends"
    ]
    return "## In short\n\n" + "\n".join(_filled(line) for line in lines) + "\n"


def _least(cell: Cell, names: Sequence[str]) -> float:
    return min(cell.above[name].estimate or 0.0 for name in names)


def _listed(cells: Sequence[Cell]) -> str:
    sizes = dict.fromkeys(cell.setting.attempts for cell in cells)
    parts = []
    for size in sizes:
        strengths = sorted(c.setting.strength for c in cells if c.setting.attempts == size)
        parts.append(f"{size} attempts " + ", ".join(f"{strength:g}" for strength in strengths))
    return "; ".join(parts) or "none"


def _filled(text: str) -> str:
    return fill(text, 110, subsequent_indent="  " if text.startswith("- ") else "", break_on_hyphens=False)


def _two_calls(results: Results) -> str:
    plans = ("fixed x2", "random x2", "mirrored x2", "default")
    rows = [
        [*_name(c.setting), *(_shown(c.tau[p]) for p in plans), _shown(c.calls, 2)] for c in results.cells
    ]
    return "## Tau with truth\n\n" + _table(["attempts", "effect", *plans, "calls of default"], rows)


def _claim(results: Results) -> str:
    rows = [
        [*_name(c.setting), _shown(c.above["fixed x2"]), _shown(c.above["random x2"]), _verdict(c)]
        for c in results.cells
    ]
    header = ["attempts", "effect", "above fixed x2", "above random x2", f"{CLAIM:g} above both"]
    words = (
        "The default against two calls; where orders disagree it takes more than they do (table above). "
        f"*yes*: both estimates are at least {CLAIM:g}; *surely*: both intervals are, too."
    )
    return "## The default above two calls\n\n" + _filled(words) + "\n\n" + _table(header, rows)


def _verdict(cell: Cell) -> str:
    both = [cell.above[name] for name in ("fixed x2", "random x2")]
    if all(e.low is not None and e.low >= CLAIM for e in both):
        return "surely"
    return "yes" if all(e.estimate is not None and e.estimate >= CLAIM for e in both) else "no"


def _same_cost(results: Results) -> str:
    names = ("fixed, same calls", "random, same calls", "mirrored, same calls", *TWO_CALLS)
    rows = [[*_name(c.setting), *(_shown(c.above[name]) for name in names)] for c in results.cells]
    words = (
        "The first three columns: the default against plans of as many calls, which spend calls 3 and 4 "
        "on as many groups, drawn by lot. The last two: two calls each, nobody escalates."
    )
    return "## At equal cost\n\n" + _filled(words) + "\n\n" + _table(["attempts", "effect", *names], rows)


def _four_calls(results: Results) -> str:
    plans = ("fixed x4", "random x4", "cyclic x4", "mirrored x4")
    rows = [[*_name(c.setting), *(_shown(c.tau[plan]) for plan in plans)] for c in results.cells]
    return "## Four calls for every group\n\n" + _table(["attempts", "effect", *plans], rows)


def _escalation(results: Results) -> str:
    rows = [[f"{t.below:g}", f"{t.calls:.2f}", f"{t.tau:.3f}", _shown(t.gain, 4)] for t in results.thresholds]
    best = max(results.thresholds, key=lambda t: t.gain.estimate or 0.0)
    words = (
        "Other groups than above, all sizes and linear effects from 0 up together. *gain*: tau above that of "
        f"as many further calls spent by lot. Its largest estimate is at {best.below:g}. A threshold mostly "
        "buys tau with calls; which groups get them matters less than how many do."
    )
    return (
        "## When to look again\n\n"
        + _filled(words)
        + "\n\n"
        + _table(["escalate_below", "calls", "tau", "gain"], rows)
    )


def _reliability(results: Results) -> str:
    words = (
        "Groups in bins of the reliability of order and reverse, linear effect of strength "
        f"{results.curves[0].setting.strength:g}. Where noise varies it is drawn for each group, from "
        f"{NOISE_FROM:g} to {NOISE_TO:g}. AUROC: how well reliability tells the groups whose two-call tau is "
        "above the median."
    )
    parts = ["## Reliability tells good groups from bad\n", _filled(words) + "\n"]
    for curve in results.curves:
        noise = "noise varies" if curve.setting.noise is None else f"noise {curve.setting.noise:g}"
        told = f"AUROC {_shown(curve.auroc)}, n = {curve.auroc.n}"
        parts.append(f"Groups of {curve.setting.attempts}, {noise}: {told}.\n")
        rows = [
            [f"{b.low:g} to {b.high:g}", str(b.two_calls.n), _shown(b.two_calls), _shown(b.default)]
            for b in curve.bins
        ]
        parts.append(_table(["reliability", "groups", "tau of two calls", "tau of default"], rows))
    return "\n".join(parts)


def _name(setting: Setting) -> list[str]:
    kind = "ends" if setting.effect == "ends" else "linear"
    return [str(setting.attempts), f"{kind} {setting.strength:g}"]


def _shown(estimate: Estimate, digits: int = 3) -> str:
    if estimate.estimate is None:
        return f"none: {estimate.method}"
    numbers = (
        f"{value:.{digits}f}" for value in (estimate.estimate, estimate.low or 0.0, estimate.high or 0.0)
    )
    return "{} [{}, {}]".format(*numbers)


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"

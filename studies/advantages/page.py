"""The study's page and its JSON."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from textwrap import fill
from typing import Any

import numpy as np

from strop.stats.intervals import Estimate
from studies.advantages.learner import CALLS, UPDATES
from studies.advantages.results import (
    MAIN,
    ONE_ORDER,
    PLACES,
    RATES,
    REFERENCE,
    TUNING_RUNS,
    TWICE,
    TWO_ORDERS,
    Family,
    Results,
    estimate,
)
from studies.advantages.worlds import CHOICES, FEATURES, LEARNABLE, STEPS, WORLDS

ONE = "one order: std"
INTRODUCTION = f"""# Which advantages learn best from a noisy judge

Rewritten by `python -m studies.advantages`. A small policy is trained on scores of a simulated judge whose
errors are planted; what counts is the true quality that it reaches after {CALLS * UPDATES} judge calls,
{CALLS} an update, whatever the setting. The advantages are strop's own (`strop.training.advantages`).

The policy makes {STEPS} choices among {CHOICES}, by softmax of {FEATURES} weights that all scenarios share;
{100 * LEARNABLE:g} % of what a choice is worth is linear in what the policy sees, the rest belongs to one
scenario. Gradient and expected quality are exact, every scenario is new, updates are on policy, by Adam.
Scores are quality, noise and a position effect, cut to 0 to 1 and rounded to 0.05. A group is shown in an
order drawn for it, and with two orders in its reverse, too: then there are half as many groups.

Numbers are percent of the best possible quality on held-out scenarios (0: chance, 100: the best choice each
time), {{runs}} runs, with 95 % bootstrap intervals by run; differences are paired by run. Learning rates are
tuned for every setting and world on {TUNING_RUNS} runs of other seeds, from
{", ".join(f"{rate:g}" for rate in RATES["adam"])}: otherwise a setting would be little but its learning
rate. Among so many comparisons, some intervals miss 0 by chance.

*noise xk*: the noise floor of a group is k times the standard error that its own two orders show
(`Verdict.noise`); *floor 0.1*: it is 0.1 for all. `{REFERENCE}`, with two orders, is
what the others are held against.

![true quality by judge calls and by position effect](advantages.svg)
"""


def to_markdown(results: Results) -> str:
    """The page."""
    big, *others = results.sizes
    parts = [
        INTRODUCTION.format(runs=results.runs),
        _in_short(results),
        _worlds(),
        _summary(results),
        _by_world(results.sizes[big], f"Groups of {big}, world by world", one_rate=False),
        _by_world(results.sizes[big], f"Groups of {big}, one learning rate for all worlds", one_rate=True),
        *(_by_world(results.sizes[n], f"Groups of {n}, world by world", one_rate=False) for n in others),
        _again(results),
        _costs(results),
        _places(results.places),
        _alone(results),
        _plain(results.plain),
    ]
    return "\n".join(parts)


def to_json(results: Results) -> dict[str, Any]:
    """One object; every estimate with its interval, n and method."""
    families = {f"{n} attempts": found for n, found in results.sizes.items()}
    families |= {f"leave-one-out, {n} attempts": found for n, found in results.alone.items()}
    families |= {"costs": results.more, "gradient ascent": results.plain, "places": results.places}
    return {
        "name": "advantages",
        "runs": results.runs,
        "judge_calls": CALLS * UPDATES,
        "reference": REFERENCE,
        "worlds": [asdict(world) for world in WORLDS],
        "families": {name: _family_json(found) for name, found in families.items()},
        "again": {
            f"{n} attempts": {world: estimate(gap).to_json() for world, gap in gaps.items()}
            for n, gaps in results.again.items()
        },
    }


def _family_json(found: Family) -> list[dict[str, Any]]:
    first = next(iter(found.cells))
    return [
        {
            "name": name,
            "setting": asdict(cell.setting),
            "world": world,
            "rate": cell.rate,
            "at_edge": cell.at_edge,
            "share": found.share(name, world).to_json(),
            "above": {first: found.above(name, first, world).to_json()},
            "one_rate": found.one_rate[name],
            "share_at_one_rate": found.share(name, world, one_rate=True).to_json(),
        }
        for name, by_world in found.cells.items()
        for world, cell in by_world.items()
    ]


def _in_short(results: Results) -> str:
    big, small = results.sizes[8], results.sizes[4]
    doubled = results.more.mean_above("twice the calls", ONE)
    lines = [
        "Best is `std` with a floor from the noise that the judge's two orders show. Once or twice that "
        f"noise is not told apart in the mean over worlds: `{TWICE}` is {_both(results, TWICE)} above "
        f"`{REFERENCE}`, but {_again_mean(results)} on runs of their own. Where half of the scenarios are "
        f"undecidable twice is better ({_again_in(results, 'undecidable')} on runs of their own): mean "
        "scores that are nothing but noise spread by about their own standard error, so that a floor of "
        "once that hardly damps them.",
        f"Without a floor: {_both(results, 'std')}. In groups of 4 it counts.",
        f"Not `none`: {_both(results, 'none')}. The noisiest groups then lead the update: *undecidable* "
        f"{_signed(big.above('none', REFERENCE, 'undecidable'))}, *uneven noise* "
        f"{_signed(big.above('none', REFERENCE, 'uneven noise'))}, groups of 8.",
        f"Nor `rank`: {_both(results, 'rank')}, with the floor {_both(results, 'rank, noise x1')}.",
        "Leave-one-out makes no difference that can be told.",
        f"At equal judge calls one order and twice the groups is {_both(results, ONE)} above, unless "
        "standing first counts for more than what sets attempts apart (*places*: "
        f"{_signed(big.above(ONE, REFERENCE, 'places'))} (8) and "
        f"{_signed(small.above(ONE, REFERENCE, 'places'))} (4)). But it samples twice the attempts; at equal "
        f"attempts two orders are {_signed(doubled)} above one, for twice the calls (groups of 8). And only "
        "two orders show the judge's reliability and noise. One order pays where calls are dear, attempts "
        "cheap, and an audit has found no position effect.",
    ]
    head = (
        f"## In short\n\nAgainst `{REFERENCE}`, in the mean over worlds; (8) and (4) are sizes of groups.\n\n"
    )
    return head + "\n".join(_filled(f"- {line}") for line in lines) + "\n"


def _again_mean(results: Results) -> str:
    means = {n: np.mean(list(gaps.values()), axis=0) for n, gaps in results.again.items()}
    return " and ".join(f"{_signed(estimate(mean))} ({n})" for n, mean in means.items())


def _again_in(results: Results, world: str) -> str:
    return " and ".join(f"{_signed(estimate(gaps[world]))} ({n})" for n, gaps in results.again.items())


def _both(results: Results, name: str) -> str:
    """Above the reference in the mean over worlds, for each size."""
    parts = [f"{_signed(found.mean_above(name, REFERENCE))} ({n})" for n, found in results.sizes.items()]
    return " and ".join(parts)


def _worlds() -> str:
    lines = [f"- *{world.name}*: {world.words}" for world in WORLDS]
    words = (
        "Where nothing else is said, quality has a standard deviation of 0.15 over attempts by chance, noise "
        "is 0.05, and standing first gains 0.1 over standing last."
    )
    return "## Worlds\n\n" + _filled(words) + "\n\n" + "\n".join(lines) + "\n"


def _summary(results: Results) -> str:
    parts = ["## All worlds together\n"]
    words = (
        f"*above*: the mean over worlds of the difference from `{REFERENCE}`; it is of these worlds, not of "
        "those that you will meet. *behind*: the largest distance below the best setting of the same number "
        "of orders in any one world, and which world. Between neighbouring learning rates tuning picks "
        "partly by chance, which can cost a point or two in one world; *one rate* is free of that."
    )
    parts.append(_filled(words) + "\n")
    for n, found in results.sizes.items():
        rows = [_summary_row(found, name) for name in MAIN]
        header = [f"{n} attempts", "above", "behind", "above, one rate", "behind, one rate"]
        parts.append(_table(header, rows))
    return "\n".join(parts)


def _summary_row(found: Family, name: str) -> list[str]:
    among = list(TWO_ORDERS if name in TWO_ORDERS else ONE_ORDER)
    row = [name]
    for one_rate in (False, True):
        gap = found.mean_above(name, REFERENCE, one_rate=one_rate)
        world, lost = found.worst(name, among, one_rate=one_rate)
        row += ["" if name == REFERENCE else _signed(gap), f"{100 * lost:.1f} ({world})"]
    return row


def _by_world(found: Family, title: str, *, one_rate: bool) -> str:
    words = (
        f"The share that `{REFERENCE}` reaches, and how far above it the others are. "
        + (f"Learning rates: {_rates(found)}." if one_rate else _edges(found))
    ).strip()
    parts = [f"## {title}\n", _filled(words) + "\n"]
    for names in ([*TWO_ORDERS], [REFERENCE, *ONE_ORDER]):
        parts.append(_differences(found, names, one_rate=one_rate))
    return "\n".join(parts)


def _differences(found: Family, names: Sequence[str], *, one_rate: bool = False) -> str:
    first, *others = names
    rows = [
        [world, _shown(found.share(first, world, one_rate=one_rate))]
        + [_signed(found.above(name, first, world, one_rate=one_rate)) for name in others]
        for world in found.cells[first]
    ]
    return _table(["world", first, *others], rows)


def _rates(found: Family) -> str:
    return ", ".join(f"{name} {rate:g}" for name, rate in found.one_rate.items())


def _edges(found: Family) -> str:
    at_edge = [
        f"{name} in {world}"
        for name, cells in found.cells.items()
        for world, cell in cells.items()
        if cell.at_edge
    ]
    return (
        f"The best learning rate was the grid's first or last for: {'; '.join(at_edge)}." if at_edge else ""
    )


def _again(results: Results) -> str:
    words = (
        f"`{TWICE}` above `{REFERENCE}`, {results.runs} runs that no other number uses, one learning rate "
        "for all worlds: what is picked for its results looks better in them than it is."
    )
    sizes = list(results.again)
    rows = [
        [world, *(_signed(estimate(results.again[n][world])) for n in sizes)]
        for world in results.again[sizes[0]]
    ]
    table = _table(["world", *(f"{n} attempts" for n in sizes)], rows)
    return "## Twice the noise, again\n\n" + _filled(words) + "\n\n" + table


def _costs(results: Results) -> str:
    words = (
        f"Against `{REFERENCE}` with groups of 8. *one order: std*: as many judge calls on twice the groups, "
        "so twice the attempts to sample. *4 attempts, twice the calls*: twice the groups of half the size, "
        "as many attempts. *twice the calls*: twice the groups, which are as many attempts as those of "
        "*one order: std*, each judged twice."
    )
    names = [REFERENCE, ONE, *(name for name in results.more.cells if name not in (REFERENCE, ONE))]
    second = [
        ["twice the calls, above one order: std", _signed(results.more.mean_above("twice the calls", ONE))]
    ]
    return (
        "## Other costs\n\n"
        + _filled(words)
        + "\n\n"
        + _differences(results.more, names)
        + "\n"
        + _table(["at equal attempts, mean over worlds", "difference"], second)
    )


def _places(found: Family) -> str:
    words = (
        "Noise 0.05, groups of 8, at equal judge calls. *effect*: what standing first gains over standing "
        "last, in scores; the standard deviation of true quality over attempts by chance is 0.15."
    )
    rows = [
        [
            f"{place:g}",
            _shown(found.share(ONE, f"{place:g}")),
            _shown(found.share(REFERENCE, f"{place:g}")),
            _signed(found.above(REFERENCE, ONE, f"{place:g}")),
        ]
        for place in PLACES
    ]
    header = ["effect", ONE, REFERENCE, "two orders above one"]
    return "## One order and more groups, or two\n\n" + _filled(words) + "\n\n" + _table(header, rows)


def _alone(results: Results) -> str:
    words = (
        "Leave-one-out multiplies a group's advantages by n / (n - 1). In groups of one size that is a "
        "learning rate, exactly; a test says so. It can differ where attempts without a score make sizes "
        "differ: the world *unscored*."
    )
    rows = []
    for n, found in results.alone.items():
        for name in [one for one in found.cells if "leave" not in one]:
            out = f"{name}, leave-one-out"
            row = [str(n), name, _shown(found.share(name, "unscored"))]
            rows.append([*row, _signed(found.above(out, name, "unscored"))])
    return (
        "## Leave-one-out\n\n"
        + _filled(words)
        + "\n\n"
        + _table(["attempts", "setting", "without", "with, above without"], rows)
    )


def _plain(found: Family) -> str:
    words = (
        "Adam evens out the size of updates over time, so that a setting's late updates are not smaller "
        f"where scores spread less. The same with plain gradient ascent, groups of 8. {_edges(found)}"
    )
    return "## Without Adam\n\n" + _filled(words.strip()) + "\n\n" + _differences(found, list(found.cells))


def _filled(text: str) -> str:
    return fill(text, 110, subsequent_indent="  " if text.startswith("- ") else "", break_on_hyphens=False)


def _shown(found: Estimate) -> str:
    return _numbers(found, "{:.1f}")


def _signed(found: Estimate) -> str:
    return _numbers(found, "{:+.1f}")


def _numbers(found: Estimate, form: str) -> str:
    if found.estimate is None or found.low is None or found.high is None:
        return found.method
    if found.low == found.high:
        return found.method
    middle, low, high = (form.format(100 * v) for v in (found.estimate, found.low, found.high))
    return f"{middle} [{low}, {high}]"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"

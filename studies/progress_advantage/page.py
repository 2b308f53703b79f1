"""The study's page and its JSON."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from strop.stats.intervals import Estimate
from studies.progress_advantage import identities, prose, sweeps
from studies.progress_advantage.cases import ATTEMPTS, BETA, Row
from studies.progress_advantage.desk import BETA as DESK_BETA
from studies.progress_advantage.mdp import Family
from studies.progress_advantage.prose import filled, shown
from studies.progress_advantage.results import BAD, Results, Uses
from studies.progress_advantage.scores import CENTRED, GRADE, LOGPROB
from studies.progress_advantage.uses import Use


def to_markdown(results: Results) -> str:
    """The page."""
    parts = [
        _introduction(results),
        "## In short\n\n" + "\n".join(prose.summary(results)) + "\n",
        _exact(results),
        _desk(results),
        *(_uses(uses) for uses in results.uses),
        _sweeps(results),
        _clipping(results),
        _aggregators(results),
        prose.LIMITS,
    ]
    return "\n".join(parts)


def _introduction(results: Results) -> str:
    family = Family()
    sizes = {"states": family.states, "actions": family.actions, "steps": family.horizon}
    words = prose.INTRODUCTION.format(worlds=results.worlds, beta=BETA, chance=family.chance, **sizes)
    return f"# The theory of the step grade, checked\n\n{filled(words)}"


def to_json(results: Results) -> dict[str, Any]:
    """One object; every estimate with its interval, n and method."""
    found: dict[str, Any] = _plain(asdict(results))
    return {"name": "progress_advantage", "beta": BETA, "bad_step": BAD, **found}


def _plain(value: Any) -> Any:
    """Estimates and dataclasses are dictionaries by now; sequences become lists, keys strings."""
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(one) for one in value]
    return value


def _exact(results: Results) -> str:
    both = (results.stochastic, results.deterministic)
    rows = [
        ["β log(π*/π_ref) = Q* − V*: largest error", *(f"{i.advantage:.0e}" for i in both)],
        ["E[grade] under π* = β KL in each state: largest error", *(f"{i.drift:.0e}" for i in both)],
        ["E[centred grade] under π* = 0: largest value", *(f"{i.centred:.0e}" for i in both)],
        ["r = grade + V*(s) − V*(s'): largest error", *(f"{i.reward:.2g}" for i in both)],
        ["the same, root mean square over steps taken", *(_known(i.surprise) for i in both)],
        ["Var(return − Σ grades) / Var(return)", *(_known(i.unexplained) for i in both)],
    ]
    header = ["", "stochastic worlds", "deterministic twins"]
    words = filled(prose.EXACT.format(beta=identities.BETA, n=results.stochastic.worlds))
    return f"## Exactly\n\n{words}\n{_table(header, rows)}"


def _known(e: Estimate) -> str:
    """Where all worlds have 0, but for rounding, there is no interval to show."""
    return f"{e.estimate:.1g}" if e.estimate is not None and abs(e.estimate) < 1e-9 else shown(e)


def _desk(results: Results) -> str:
    rows = [
        [
            c.state,
            c.action,
            f"{c.reference:.2f}",
            f"{c.policy:.3f}",
            *(f"{x:.3f}" for x in (c.q, c.v)),
            f"{c.grade:+.3f}",
            f"{c.drift:.3f}",
        ]
        for c in results.desk
    ]
    header = ["state", "action", "π_ref", "π*", "Q*", "V*", "grade", "β KL"]
    words = prose.desk(results.desk)
    return f"## A world to read: the order desk, beta {DESK_BETA:g}\n\n{words}\n{_table(header, rows)}"


def _uses(uses: Uses) -> str:
    columns = {
        f"select: success of the pick, {uses.worlds} worlds": uses.select,
        f"right order inside a world, {_n(uses.order)} pairs": uses.order,
        f"predict: AUROC over worlds, {_n(uses.predict)} attempts": uses.predict,
    }
    names = list(dict.fromkeys(name for use in columns.values() for name in use.results))
    rows = [[name, *(_cell(use, name) for use in columns.values())] for name in names]
    steps = {"first bad step": uses.first, "costliest step": uses.costliest}
    named = [[name, *(_cell(use, name) for use in steps.values())] for name in uses.first.results]
    words = filled(prose.USES.format(beta=BETA, n=ATTEMPTS, success=uses.success))
    failed = filled(prose.FAILURES.format(failures=uses.failures, luckless=uses.luckless, bad=BAD))
    figure = (
        "![uses beside their nulls](progress-advantage-uses.svg)\n\n" if uses.name == "stochastic" else ""
    )
    return (
        f"## The uses in {uses.name} worlds\n\n{words}\n{figure}{_table(['score', *columns], rows)}\n"
        f"{failed}\n{_table(['lowest', *steps], named)}"
    )


def _n(use: Use) -> int:
    return use.results[GRADE].n


def _cell(use: Use, name: str) -> str:
    """The estimate; a star where the grade is surely above it, a dagger where it is surely below."""
    if name not in use.results:
        return ""
    difference = use.differences.get(name)
    sign = ""
    if difference is not None and difference.low is not None and difference.high is not None:
        sign = " *" if difference.low > 0 else " †" if difference.high < 0 else ""
    return shown(use.results[name]) + sign


def _sweeps(results: Results) -> str:
    parts = [f"## What changes it\n\n{prose.SWEEPS}\n![six things that change](progress-advantage.svg)\n"]
    for name, rows in results.sweeps.items():
        parts.append(f"### {prose.TITLES[name][0]}\n\n{prose.TITLES[name][1]}\n{_sweep(rows)}")
    return "\n".join(parts)


def _sweep(rows: Sequence[Row]) -> str:
    header = [
        "",
        "success",
        "step: with A*",
        "step: with Q − V",
        "attempt: grade",
        "centred − grade",
        "grade − log-prob",
        "with steps: grade",
        "with steps: centred",
        "picked: grade",
        "picked: centred",
        "picked: log-prob",
    ]
    lines = [
        [
            row.label,
            f"{row.success.estimate:.3f}",
            *map(shown, (row.step, row.plain, row.attempt[GRADE], row.centring, row.above)),
            *(shown(row.length[name]) for name in (GRADE, CENTRED)),
            *(shown(row.picked[name], 2) for name in (GRADE, CENTRED, LOGPROB)),
        ]
        for row in rows
    ]
    return _table(header, lines)


def _clipping(results: Results) -> str:
    rows = [
        [
            str(d.updates),
            f"{d.largest_update:.4f}",
            shown(d.from_reference),
            f"{d.likest_beta:g}",
            shown(d.likeness),
        ]
        for d in results.drifts
    ]
    header = ["updates", "largest KL of the last update", "KL of an attempt to the reference"]
    header += ["likest beta", "correlation with its A*"]
    words = filled(
        prose.CLIPPING.format(
            clip=sweeps.CLIP, half=sweeps.CLIP**2 / 2, low=1 - sweeps.CLIP, high=1 + sweeps.CLIP
        )
    )
    return f"### What clipping bounds\n\n{words}\n{_table(header, rows)}"


def _aggregators(results: Results) -> str:
    rows = [
        [a.tokens, a.reading.replace("-", " "), a.steps, _exactly(a.step), shown(a.order)]
        for a in results.aggregations
    ]
    header = ["tokens", "reading", "steps", "step: with A*", "right order inside a world"]
    n = results.aggregations[0].step.n
    return f"## Ways to add up\n\n{filled(prose.AGGREGATORS.format(n=n, beta=BETA))}\n{_table(header, rows)}"


def _exactly(e: Estimate) -> str:
    return "1" if e.estimate is not None and abs(e.estimate - 1) < 1e-9 else shown(e)


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"

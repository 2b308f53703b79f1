"""The page and the JSON object of the study."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from strop.grader.comparison import Comparison
from strop.stats.intervals import Estimate
from studies.public_verdicts import agentprocessbench, known, llmbar

HEAD = """# Published verdicts through strop's statistics

Rewritten by `python -m studies.public_verdicts`. Verdicts that others published are counted with the
functions that count a run's own judge (`strop.stats`, `strop.audit`), so that known figures show whether
the counting is right. Shares are in per cent, with a 95 % interval in brackets; n says how many.
"""

LLMBAR = """## LLMBar: two judges, five prompts, both orders

419 pairs with one better answer; each judge saw every pair in both orders (MIT, princeton-nlp/LLMBar).
*right*: choices of the better answer, both orders together, resampled by pair. *right twice*, *same
choice*: pairs, Wilson. *first*: choices of the answer shown first, resampled by pair; 50 where place does
not matter. κ: same choice beyond chance, resampled by pair. A choice that was not made is left out (x).
`Rating` rates each answer alone: there is no order, and its ties are stored as "the one shown last".
Nulls: *longer* and *shorter* answer wins (characters), resampled by pair; a coin gets 50.
"""

AGENTS = """## AgentProcessBench: seven judges of agents' runs

Five runs a task, each judged alone (arXiv 2603.14465, RUCBM/AgentProcessBench). Pairs of runs of one task
whose human final labels differ, ordered by the judge's final label or by the mean of its step labels, ties
half; resampled by task. *passes failed*: failed runs that the judge passes, resampled by task. *over more
steps*: agreement by final label less that of "the run of more steps wins", resampled together.
"""

FAILED = """A call that failed is stored with the final label 0, as if the judge had said "neither". The
first table leaves such runs out; the second takes the files as they are.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """What the study found; `statistics` counts the authors' files of LLMBar that are met and all of them."""

    rows: Sequence[llmbar.Row]
    nulls: Sequence[llmbar.Nulls]
    statistics: tuple[int, int]
    figures: agentprocessbench.Figures
    audits: dict[str, Comparison]

    @property
    def complete(self) -> bool:
        """Whether all four sets of AgentProcessBench were there."""
        return self.figures.sets == agentprocessbench.ALL_SETS


def to_json(results: Results) -> dict[str, Any]:
    """One object; every number an estimate with interval, n and method."""
    figures = results.figures
    return {
        "name": "public_verdicts",
        "llmbar": {
            "judges": [
                {"subset": r.subset, "model": r.model, "prompt": r.prompt, **r.check.to_json()}
                for r in results.rows
            ],
            "nulls": [
                {"subset": n.subset, "longer": n.longer.to_json(), "shorter": n.shorter.to_json()}
                for n in results.nulls
            ],
            "statistics_met": results.statistics[0],
            "statistics": results.statistics[1],
        },
        "agentprocessbench": {
            "sets": list(figures.sets),
            "tasks": figures.tasks,
            "runs": figures.runs,
            "judges": {row.judge: _judge_json(row) for row in figures.rows},
            "nulls": {"fewer steps wins": figures.fewer.to_json(), "more steps wins": figures.more.to_json()},
            "human_steps": figures.human_steps.to_json(),
            "differs_from_known": known.differs(figures) if results.complete else None,
            "audits": {judge: audit.to_json() for judge, audit in results.audits.items()},
        },
    }


def _judge_json(row: agentprocessbench.Row) -> dict[str, Any]:
    readings = {
        name: {key: getattr(reading, key).to_json() for key in reading.__slots__}
        for name, reading in (("scored", row.scored), ("stored", row.stored))
    }
    return {"failed_calls": row.failed_calls, **readings, "over_more_steps": row.over_longer.to_json()}


def to_markdown(results: Results) -> str:
    """The page."""
    return "\n".join([HEAD, LLMBAR, *_llmbar(results), "", AGENTS, FAILED, *_agents(results), ""])


def _llmbar(results: Results) -> Iterator[str]:
    met, given = results.statistics
    recoded, alike = results.rows[0].recoded_kappas[0], results.rows[0].label_kappas[0]
    yield (
        f"The authors published statistics for {given} of these rows; all entries of {met} are met: counts "
        "exactly, κ of the two orders to rounding. Their `kappa_False` and `kappa_True` are met too, but "
        "compare a choice coded 1 or 0 with a label coded 1 or 2, so they are no agreement with the label "
        f"(GPT-4 Vanilla on Natural, right in 95 of 100: {recoded:.2f}; with both sides coded alike "
        f"{alike:.2f})."
    )
    for null in results.nulls:
        yield (
            f"\n### {null.subset.replace('_', ', ')}\n\n"
            f"Nulls, n {null.longer.n}: longer {percent(null.longer)}, shorter {percent(null.shorter)}.\n"
        )
        yield from table(
            ["judge", "right", "right twice", "same choice", "first", "κ", "pairs", "x"],
            [_llmbar_cells(row) for row in results.rows if row.subset == null.subset],
        )


def _llmbar_cells(row: llmbar.Row) -> list[str]:
    check, alone = row.check, row.prompt == llmbar.POINTWISE
    order = (
        ["no order"] * 3
        if alone
        else [percent(check.consistency), percent(check.first_share), kappa(check.kappa)]
    )
    pairs = check.consistency.n + check.consistency.excluded
    return [
        f"{row.model} {row.prompt}",
        percent(check.accuracy),
        percent(check.both_right),
        *(["no order"] * 3 if alone else order),
        str(pairs),
        str(check.accuracy.excluded),
    ]


def _agents(results: Results) -> Iterator[str]:
    figures = results.figures
    yield (
        f"Here: {', '.join(figures.sets)}; {figures.runs} runs of {figures.tasks} tasks, "
        f"{figures.fewer.n} pairs in {figures.fewer.clusters} tasks. Nulls: "
        f"the run of fewer steps wins {percent(figures.fewer)}, of more steps {percent(figures.more)}, "
        "a constant 50. The mean of the human step labels: "
        f"{percent(figures.human_steps)}.\n"
    )
    head = ["judge", "by final label", "by step labels", "passes failed", "pairs", "left out"]
    yield from table(
        [*head, "over more steps"],
        [[*_cells(row, row.scored, str(row.failed_calls)), percent(row.over_longer)] for row in figures.rows],
    )
    yield "\nThe files as they are:\n"
    yield from table(head, [_cells(row, row.stored, "0") for row in figures.rows])
    yield "\n" + _against_known(results) + "\n"
    yield from table(["judge", "by final label", "by step labels", "passes failed"], list(_known()))
    yield "\n" + _audits(results)


def _cells(row: agentprocessbench.Row, reading: agentprocessbench.Reading, left_out: str) -> list[str]:
    shares = [percent(e) for e in (reading.final, reading.steps, reading.passes_failed)]
    return [row.judge, *shares, str(reading.final.n), left_out]


def _against_known(results: Results) -> str:
    what = (
        "Known for all four sets together (736 pairs in 140 tasks, files as they are, a second program; "
        f"fewer steps {_shares(known.FEWER_STEPS)}, human steps {_shares(known.HUMAN_STEPS)})"
    )
    if not results.complete:
        absent = sorted(set(agentprocessbench.ALL_SETS) - set(results.figures.sets))
        return (
            f"{what}; {' and '.join(absent)} are not here, so that these cannot be compared with the "
            "tables above. `studies/public_verdicts/known.py` says where they are; with them in place the "
            "command compares all four:"
        )
    differing = known.differs(results.figures)
    return f"{what}. " + ("All are met:" if not differing else f"Not met: {', '.join(differing)}.")


def _known() -> Iterator[list[str]]:
    for judge, figures in known.KNOWN.items():
        passes = f"{100 * figures.passes_failed:.1f}"
        yield [judge, _shares(figures.final), _shares(figures.steps), passes]


def _audits(results: Results) -> str:
    lines = [
        f"- {judge}: {percent(audit.results[audit.default])}; {audit.verdict}."
        for judge, audit in results.audits.items()
    ]
    nulls = next(iter(results.audits.values())).nulls
    shown = ", ".join(f"{name} {percent(estimate)}" for name, estimate in nulls.items())
    return "\n".join(
        [
            "## The audit that a run's own judge gets, on hotpotqa",
            "",
            "Final labels of the set with full messages through `strop.audit.judge`; length is what the "
            f"agent wrote, in characters. Nulls: {shown} (over the runs that the first judge scored).",
            "",
            *lines,
        ]
    )


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Lines of a Markdown table."""
    for cells in (head, ["---"] * len(head), *rows):
        yield f"| {' | '.join(cells)} |"


def percent(estimate: Estimate) -> str:
    """A share or a difference of shares in per cent with its interval, or why there is none."""
    return _number(estimate, 100, 1)


def kappa(estimate: Estimate) -> str:
    """A number as it is, with its interval."""
    return _number(estimate, 1, 2)


def _number(estimate: Estimate, scale: float, places: int) -> str:
    if estimate.estimate is None or estimate.low is None or estimate.high is None:
        return estimate.method
    share, low, high = (f"{scale * x:.{places}f}" for x in (estimate.estimate, estimate.low, estimate.high))
    return f"{share} [{low}, {high}]"


def _shares(known_shares: tuple[float, ...]) -> str:
    share, *bounds = (f"{100 * x:.1f}" for x in known_shares)
    return f"{share} [{', '.join(bounds)}]" if bounds else share

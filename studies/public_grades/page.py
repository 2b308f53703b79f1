"""The page and the JSON object of the study."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from studies.public_grades.found import LogFound, Setting

HEAD = """# Step grades on public logs: a smoke of the pipeline

Rewritten by `python -m studies.public_grades`. Public logs are read, graded as `strop grade` does and put to
use as `strop select`, `predict` and `attribute` do, beside the same nulls.
"""

SMOKE = """**What this is not:** a measurement of the method. The pair here is the embedded one: 135 million
parameters, trained at an order desk and at nothing else, which wrote none of these logs. It shows that the
way from a public file to a number with its interval works, with labels at the right steps. Nothing is claimed
of the numbers. A pair that means something goes through the same command:

    python -m studies.public_grades --policy allenai/Olmo-3-7B-Instruct \\
        --reference allenai/Olmo-3-7B-Instruct-DPO --share 1 --max-length 16384
"""

OWN = """The pair here is not the embedded one; whether it says anything of these logs, the intervals and the
nulls tell.
"""

READING = """Tables: estimate with its 95 % interval, scenarios resampled, and the first line less each null,
resampled together. Nothing was chosen on these data. `--json` has all baselines, the tables show some; the
sentence below each names every null that the first line does not beat.
"""

TITLES = {
    "select": "best of the attempts at a scenario",
    "predict": "will the run succeed?",
    "attribute": "which step was the first wrong one? (exact match)",
    "steps": "right steps told from wrong ones",
    "agents": "which agent was it? (exact match)",
}

SHOWN = (
    "random",
    "uniform guess",
    "constant",
    "first step",
    "last step",
    "always step 1",
    "longest step",
    "longest message",
    "whoever wrote most",
    "earlier in the run",
    "fewer tokens",
    "more tokens",
    "fewer steps",
    "more steps",
    "policy log-prob",
    "reference log-prob",
    "Self-Certainty",
    "DeepConf",
)
"""Nulls that the page shows, where a table has them, with those of reward models."""


def to_json(setting: Setting, found: Sequence[LogFound]) -> dict[str, Any]:
    """One object; every number an estimate with interval, n and method."""
    return {
        "name": "public_grades",
        "policy": setting.policy,
        "reference": setting.reference,
        "model": setting.model,
        "share": setting.share,
        "seed": setting.seed,
        "max_length": setting.max_length,
        "logs": {
            one.log.name: {
                "runs": one.drawn[0],
                "scenarios": one.drawn[1],
                "of_runs": one.whole[0],
                "of_scenarios": one.whole[1],
                "graded": dict(one.graded),
                **one.found,
            }
            for one in found
        },
    }


def to_markdown(setting: Setting, found: Sequence[LogFound], *, embedded: bool) -> str:
    """The page; `embedded` says that the pair is the one that comes with strop."""
    parts = [HEAD, SMOKE if embedded else OWN, *_taken(setting, found), "", READING]
    for one in found:
        parts.append(f"## {one.log.name}\n")
        for use, result in one.found.items():
            parts += [*_section(use, result, setting), ""]
    return "\n".join(parts).rstrip() + "\n"


def _taken(setting: Setting, found: Sequence[LogFound]) -> Iterator[str]:
    yield (
        f"Policy `{_short(setting.policy)}`, reference `{_short(setting.reference)}`, model "
        f"`{_short(setting.model)}`. Of each log a share of {setting.share:g} of its scenarios, drawn at "
        f"random with seed {setting.seed} before anything was read, with all their runs. The models see "
        f"{setting.max_length or 'all'} tokens at once and slide over longer runs.\n"
    )
    rows = [
        [
            one.log.name,
            f"{one.drawn[0]} of {one.whole[0]}",
            f"{one.drawn[1]} of {one.whole[1]}",
            f"{one.graded['runs']}",
            f"{one.graded['steps']:,}",
            f"{one.graded['tokens']:,}",
            f"{one.graded['unscored_steps']}",
            f"{one.graded['beyond_context']}",
        ]
        for one in found
    ]
    head = ["log", "runs", "scenarios", "graded", "steps", "their tokens", "unscored", "start out of sight"]
    yield from _table(head, rows)


def _section(use: str, result: Mapping[str, Any], setting: Setting) -> Iterator[str]:
    default = result["default"]
    first = result["results"][default]
    clusters = first.get("clusters") or first["n"]
    yield f"### {TITLES[use].capitalize()}\n"
    yield f"{result['measure'].capitalize()}; n {first['n']} in {clusters} scenarios.\n"
    rows = [[f"**{default}**", cell(first), ""]]
    rows += [[name, cell(e), ""] for name, e in result["results"].items() if name != default]
    rows += [
        [f"null: {name}", cell(e), cell(result["differences"][name])]
        for name, e in result["nulls"].items()
        if _is_shown(name, setting)
    ]
    rows += [[f"null: {name}", cell(e), cell(less) if less else ""] for name, e, less in _constants(result)]
    yield from _table(["", result["measure"], "first line less it"], rows)
    yield f"\n{result['verdict']}."
    left = {**result.get("left_out", {}), **result["excluded"]}
    if left:
        yield f"Left out: {', '.join(f'{count} {reason}' for reason, count in left.items())}."


def _constants(result: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any], Any]]:
    """Always the same step, of the use that names one."""
    constants = result.get("constants")
    if constants is None:
        return
    if "1" in constants["always"]:
        yield "always step 1", constants["always"]["1"], None
    yield "best constant, chosen on other scenarios", constants["best_crossfitted"], constants["difference"]


def _is_shown(name: str, setting: Setting) -> bool:
    return name in SHOWN or any(name.startswith(one.name) for one in setting.rewards)


def cell(estimate: Mapping[str, Any]) -> str:
    """An estimate with its interval, or why there is none."""
    if estimate["estimate"] is None:
        return str(estimate["method"])
    numbers = (estimate[name] for name in ("estimate", "low", "high"))
    value, low, high = (f"{number:.3f}" for number in numbers)
    return f"{value} [{low}, {high}]"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    for cells in (head, ["---"] * len(head), *rows):
        yield f"| {' | '.join(cells)} |"


def _short(name: str) -> str:
    """A hub name as it is; of a folder its last two parts, which say what it is on no machine."""
    folder = Path(name).expanduser()
    return "/".join(folder.resolve().parts[-2:]) if folder.is_dir() else name

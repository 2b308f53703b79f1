"""strop judge"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from strop.cli.cost import money, to_come
from strop.cli.judge_progress import JudgeProgress
from strop.cli.options import Json
from strop.cli.output import emit
from strop.cli.prompts import emit_prompts
from strop.errors import InputError

SCORES = Path("scores.jsonl")


def run(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE.jsonl", help="Trajectories or plain chat logs, one a line.")
    ] = None,
    judge: Annotated[
        Path | None,
        typer.Option(
            metavar="JUDGE.toml", help="Who judges; default: STROP_JUDGE_*, else the embedded judge."
        ),
    ] = None,
    rubric: Annotated[
        Path | None, typer.Option(metavar="FILE", help="What is good; default: the judge file's.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where the scores go.  [default: scores.jsonl]")
    ] = None,
    show: Annotated[
        bool, typer.Option("--show", help="Print a group's exact prompts; nobody is asked.")
    ] = False,
    group: Annotated[
        str | None, typer.Option(metavar="ID", help="The group to show; default: the first.")
    ] = None,
    replay: Annotated[
        Path | None,
        typer.Option(
            metavar="SCORES.jsonl", help="Read its raw replies again; nobody is asked. Needs --out."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Score the trajectories of each group by comparing them.

    Ctrl-C ends it in good order. Replies of an endpoint are kept in a cache, so that the same command
    goes on where it stopped and pays for nothing twice.
    """
    if replay is not None:
        if out is None or file is not None or show:
            raise InputError("--replay SCORES.jsonl goes with --out FILE and no other file, nor with --show")
        _replay(replay, out, json=json)
        return
    if file is None:
        raise InputError("give FILE.jsonl to judge, or --replay SCORES.jsonl to read verdicts again")
    if group is not None and not show:
        raise InputError("--group is for --show")
    from strop import app

    with JudgeProgress() as progress:
        job = app.JudgeJob(file=file, out=out or SCORES, judge=judge, rubric=rubric, progress=progress)
        if show:
            emit_prompts(app.show_prompts(job, group), as_json=json)
            return
        judged = app.judge_file(job)
    emit(judged.result if json else _rows(judged.result), as_json=json, title=f"strop judge {file.name}")
    if judged.ended is not None:
        raise judged.ended


def _rows(result: Mapping[str, Any]) -> dict[str, Any]:
    """The result as a person wants it: money with its unit, nothing that says nothing."""
    rows = {**result, "money": money(result["money"])}
    if not rows["unmetered"]:
        del rows["unmetered"]
    if rows["forecast"] is None:
        del rows["forecast"]
    else:
        rows["forecast"] = to_come(rows["forecast"])
    return rows


def _replay(scores: Path, out: Path, *, json: bool) -> None:
    from strop import app

    emit(app.replay_file(scores, out), as_json=json, title=f"strop judge --replay {scores.name}")

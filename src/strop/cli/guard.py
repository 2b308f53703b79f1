"""strop guard"""

from pathlib import Path
from typing import Annotated, Literal

import typer

from strop.cli.options import Json
from strop.cli.output import emit
from strop.cli.uses_options import Grades, Seed, Success

cli = typer.Typer(
    help="Hold tool calls that cannot be undone.\n\nOne is held where its step grade is low.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Trajectories = Annotated[
    Path, typer.Option(metavar="FILE.jsonl", help="The runs the grades are of, with truth.")
]


@cli.command("fit")
def fit(
    file: Grades,
    trajectories: Trajectories,
    tool: Annotated[
        list[str], typer.Option(metavar="NAME", help="A tool that cannot be undone; repeatable.")
    ],
    rate: Annotated[float, typer.Option(help="Share of right calls that may be held.")] = 0.05,
    score: Annotated[Literal["sum", "mean"], typer.Option(help="How tokens make a step's grade.")] = "sum",
    out: Annotated[Path, typer.Option(help="Where the guard goes.")] = Path("guard.json"),
    success: Success = 1.0,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Find the grade under which calls are held.

    It is set so that few of the right calls are, as calls of labelled runs show it.
    """
    from strop.app.guarding import LabelledRuns, fit_guard

    runs = LabelledRuns(grades=file, trajectories=trajectories, success=success)
    result = fit_guard(runs, tools=tool, rate=rate, score=score, out=out, seed=seed)
    emit(result, as_json=json, title=f"strop guard fit {file.name}")


@cli.command("check")
def check(
    guard: Annotated[Path, typer.Argument(metavar="GUARD.json", help="As strop guard fit wrote it.")],
    file: Grades,
    trajectories: Trajectories,
    success: Success = 1.0,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """See what a guard would hold of fresh runs.

    Right calls against its promise, wrong ones against chance.
    """
    from strop.app.guarding import LabelledRuns, check_guard

    runs = LabelledRuns(grades=file, trajectories=trajectories, success=success)
    emit(check_guard(guard, runs, seed=seed), as_json=json, title=f"strop guard check {file.name}")

"""strop judge"""

from pathlib import Path
from typing import Annotated

import typer

from strop.cli.options import Json
from strop.cli.output import emit


def run(
    file: Annotated[Path, typer.Argument(metavar="FILE.jsonl", help="Trajectories, one a line.")],
    judge: Annotated[
        Path | None, typer.Option(metavar="JUDGE.toml", help="Who judges; default: the embedded judge.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Where the scores go.")] = Path("scores.jsonl"),
    json: Json = False,
) -> None:
    """Score the trajectories of each group by comparing them."""
    from strop import app

    emit(app.judge_file(file, judge, out), as_json=json, title=f"strop judge {file.name}")

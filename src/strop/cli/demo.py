"""strop demo"""

from pathlib import Path
from typing import Annotated

import typer

from strop.cli.options import Json, Resume
from strop.cli.progress import Progress
from strop.cli.summary import emit_run


def run(
    seed: Annotated[int, typer.Option(min=0, help="Root of all randomness.")] = 0,
    out: Annotated[
        Path | None, typer.Option("--run", help="Folder of the run. Default: runs/demo-SEED.")
    ] = None,
    judge: Annotated[Path | None, typer.Option(help="judge.toml; default: the embedded judge.")] = None,
    resume: Resume = False,
    json: Json = False,
) -> None:
    """The whole loop on this machine: train, grade, audit, report.

    A small language model learns to handle customers' orders because another one compares its
    attempts. STROP_JUDGE_BASE_URL, STROP_JUDGE_MODEL and STROP_JUDGE_API_KEY name another judge.
    """
    from strop import app

    with Progress() as progress:
        options = app.DemoOptions(
            seed=seed, run=out or Path("runs") / f"demo-{seed}", judge=judge, resume=resume, progress=progress
        )
        result = app.demo(options)
    emit_run(result, as_json=json, title="strop demo")

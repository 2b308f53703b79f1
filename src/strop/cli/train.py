"""strop train"""

from pathlib import Path
from typing import Annotated

import typer

from strop.cli.options import Json
from strop.cli.progress import Progress
from strop.cli.summary import emit_run


def run(
    config: Annotated[Path, typer.Argument(metavar="RUN.toml", help="Settings of the run.")],
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="TABLE.KEY=VALUE", help="Change a setting; repeatable."),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue a run that was stopped.")] = False,
    json: Json = False,
) -> None:
    """Train your own agent on your own scenarios.

    Each step: rollouts, judge, advantages, a GRPO update of the LoRA, checkpoint, publish.
    """
    from strop.config import load

    settings = load(config, overrides or [])
    from strop import app

    with Progress() as progress:
        result = app.train(settings, resume=resume, progress=progress)
    emit_run(result, as_json=json, title=f"strop train {config.name}")

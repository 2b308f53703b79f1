"""strop train"""

import sys
from pathlib import Path
from typing import Annotated

import typer

from strop.cli.options import Json, Overrides, Resume
from strop.cli.progress import Progress
from strop.cli.summary import emit_run


def run(
    config: Annotated[Path, typer.Argument(metavar="RUN.toml", help="Settings of the run.")],
    overrides: Overrides = None,
    resume: Resume = False,
    json: Json = False,
) -> None:
    """Train your own agent on your own scenarios.

    Each step: rollouts, judge, advantages, a GRPO update of the LoRA, checkpoint, publish.
    """
    from strop.config import load

    settings = load(config, overrides or [])
    from strop.engines.doctor.examine import warning

    short = warning(settings)
    if short is not None:
        print(f"strop: warning: {short}", file=sys.stderr)
    from strop import app

    with Progress() as progress:
        result = app.train(settings, resume=resume, progress=progress)
    emit_run(result, as_json=json, title=f"strop train {config.name}")

"""strop grade"""

from pathlib import Path
from typing import Annotated

import typer

from strop.cli.options import Json
from strop.cli.output import emit


def run(
    file: Annotated[Path, typer.Argument(metavar="FILE.jsonl", help="Trajectories, one a line.")],
    policy: Annotated[Path, typer.Option(help="LoRA adapter after training.")],
    reference: Annotated[
        Path | None, typer.Option(help="LoRA adapter before training; default: the bare model.")
    ] = None,
    model: Annotated[str, typer.Option(help="The base model of both.")] = "smollm2",
    out: Annotated[Path, typer.Option(help="Where the grades go.")] = Path("grades.jsonl"),
    json: Json = False,
) -> None:
    """Grade every step of trajectories, policy against reference.

    A grade is how much more likely the trained policy is to take the step than the model it was
    trained from.
    """
    from strop import app

    result = app.grade(file=file, policy=policy, reference=reference, model=model, out=out)
    emit(result, as_json=json, title=f"strop grade {file.name}")

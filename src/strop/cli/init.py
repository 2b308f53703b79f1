"""strop init"""

from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from strop.cli.options import Json
from strop.cli.output import emit
from strop.errors import InputError
from strop.trajectory.atomic import replacing

STARTER = ("agent.py", "scenarios.jsonl", "rubric.md", "run.toml")


def run(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder to make; it may exist.")],
    json: Json = False,
) -> None:
    """Make a starter project that can be trained at once.

    It holds an agent, scenarios, a rubric and the settings of a run.
    """
    there = [name for name in STARTER if (folder / name).exists()]
    if there:
        raise InputError(f"{folder}: {', '.join(there)} is there already; nothing was written")
    for name in STARTER:
        with replacing(folder / name) as file:
            file.write(files("strop.cli").joinpath("starter", name).read_bytes())
    written = [str(folder / name) for name in STARTER]
    emit({"written": written, "next": f"strop train {folder / 'run.toml'}"}, as_json=json)

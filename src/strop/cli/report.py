"""strop report"""

from pathlib import Path
from typing import Annotated

import typer

from strop.cli.options import Json
from strop.cli.output import emit


def run(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run.")],
    json: Json = False,
) -> None:
    """Write a run's report, one self-contained HTML file."""
    from strop import app

    emit({"run": folder, "report": app.report(folder)}, as_json=json)

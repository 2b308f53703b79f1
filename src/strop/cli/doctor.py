"""strop doctor"""

import sys

import typer

from strop.cli.options import Json
from strop.cli.output import emit


def run(json: Json = False) -> None:
    """Say what this machine can run, and what is missing. Exit code 1 where something is."""
    from strop.engines.machine import examine

    found = examine()
    emit(found, as_json=json, title="strop doctor")
    if found["missing"]:
        sys.stderr.write("".join(f"strop: missing: {item}\n" for item in found["missing"]))
        raise typer.Exit(1)

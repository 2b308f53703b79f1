"""Options that several verbs share."""

from pathlib import Path
from typing import Annotated

import typer

from strop.errors import InputError

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object; logs go to standard error.")]
Resume = Annotated[bool, typer.Option("--resume", help="Continue one that was stopped.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="TABLE.KEY=VALUE", help="Change a setting; repeatable."),
]


def named_path(option: str, text: str, form: str) -> tuple[str, Path]:
    """Name and path of a value like NAME=PATH. Raises InputError, naming `option` and its `form`."""
    name, equals, path = text.partition("=")
    if not (name and equals and path):
        raise InputError(f"{option} {text}: must have the form {form}")
    return name, Path(path).expanduser()

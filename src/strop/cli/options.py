"""Options that several verbs share."""

from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object; logs go to standard error.")]

"""Options that say which vLLM server is used, and how it is come by."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from strop.errors import InputError

if TYPE_CHECKING:
    from strop.config.engine import EngineConfig

EngineKind = Literal["local", "vllm"]
EnginePython = Annotated[
    Path | None, typer.Option(help="Python that has vLLM, to start a server; default: the one of strop.")
]
EngineUrl = Annotated[str | None, typer.Option(help="A running vLLM server, instead of starting one.")]


def engine_config(kind: EngineKind, python: Path | None, url: str | None) -> "EngineConfig":
    """What the options say. Raises InputError where they do not go together."""
    if kind == "local" and (python or url):
        raise InputError("--engine-python and --engine-url are for --engine vllm; add that")
    from pydantic import ValidationError

    from strop.config.engine import EngineConfig

    try:
        return EngineConfig(kind=kind, python=python, url=url)
    except ValidationError as error:
        raise InputError(f"--engine-url {url}: must be an address such as http://host:8000") from error

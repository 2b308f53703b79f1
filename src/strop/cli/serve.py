"""strop serve"""

import os
from pathlib import Path
from typing import Annotated

import typer

from strop.cli.options import Json
from strop.errors import InputError


def run(
    model: Annotated[str, typer.Option(help="smollm2, a model folder or a hub name.")] = "smollm2",
    adapter: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=PATH", help="LoRA adapter and its model name; repeatable."),
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen at; the default is this machine only.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 8000,
    api_key_env: Annotated[
        str, typer.Option(help="Variable that holds the key clients must send; unset or empty: no key.")
    ] = "STROP_API_KEY",
    json: Json = False,
) -> None:
    """Serve a model and adapters the way OpenAI does, until Ctrl-C."""
    adapters = dict(_named(text) for text in adapter or [])
    key = os.environ.get(api_key_env) or None
    if key is None and host not in ("127.0.0.1", "::1", "localhost"):
        raise InputError(f"--host {host}: others can reach it; put a key into {api_key_env} first")
    from strop import app
    from strop.cli.output import emit

    def ready(base_url: str) -> None:
        emit(
            {"base_url": base_url, "model": model, "adapters": list(adapters)}, as_json=json, title="serving"
        )

    app.serve(model=model, adapters=adapters, host=host, port=port, api_key=key, ready=ready)


def _named(text: str) -> tuple[str, Path]:
    name, equals, path = text.partition("=")
    if not (name and equals and path):
        raise InputError(f"--adapter {text}: must have the form NAME=PATH")
    folder = Path(path).expanduser()
    if not folder.is_dir():
        raise InputError(f"--adapter {text}: no such folder")
    return name, folder

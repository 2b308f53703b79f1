"""strop serve"""

import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from strop.cli.engine_options import EngineKind, EnginePython, EngineUrl, engine_config
from strop.cli.options import Json, named_path
from strop.errors import InputError

if TYPE_CHECKING:
    from strop.app.guarding import GuardServing


GuardFile = Annotated[
    Path | None,
    typer.Option(metavar="GUARD.json", help="Grade calls that cannot be undone, hold low ones."),
]
GuardAction = Annotated[
    Literal["hold", "mark"],
    typer.Option(help="hold: a low call waits for approval; mark: the response only says so."),
]
GuardTimeout = Annotated[
    float, typer.Option(min=0.0, help="Seconds a low call waits before it is answered as held.")
]
ApprovalKeyEnv = Annotated[
    str, typer.Option(help="Variable that holds the key of whoever approves; unset: one is made and shown.")
]


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
    policy: Annotated[
        Path | None,
        typer.Option(help="LoRA adapter that answers to the name policy; default: the bare model."),
    ] = None,
    reference: Annotated[
        Path | None, typer.Option(help="LoRA adapter a guard grades against; default: the bare model.")
    ] = None,
    engine: Annotated[
        EngineKind, typer.Option(help="Who answers: this process, or a vLLM server behind it.")
    ] = "local",
    engine_python: EnginePython = None,
    engine_url: EngineUrl = None,
    guard: GuardFile = None,
    guard_action: GuardAction = "hold",
    guard_timeout: GuardTimeout = 60.0,
    approval_key_env: ApprovalKeyEnv = "STROP_APPROVAL_KEY",
    json: Json = False,
) -> None:
    """Serve a model and adapters the way OpenAI does, until Ctrl-C."""
    adapters = dict(_adapter(text) for text in adapter or [])
    key = os.environ.get(api_key_env) or None
    if key is None and host not in ("127.0.0.1", "::1", "localhost"):
        raise InputError(f"--host {host}: others can reach it; put a key into {api_key_env} first")
    from strop import app
    from strop.cli.output import emit

    serving = engine_config(engine, engine_python, engine_url)
    watch = _watch(guard, guard_action, guard_timeout, approval_key_env) if guard else None

    def ready(base_url: str) -> None:
        served: dict[str, Any] = {"base_url": base_url, "model": model, "adapters": list(adapters)}
        if watch is not None:
            served |= {"approvals": f"{base_url}/approvals", "approval_key": watch.approval_key}
        emit(served, as_json=json, title="serving")

    app.serve(
        model=model,
        adapters=adapters,
        host=host,
        port=port,
        api_key=key,
        ready=ready,
        policy=policy,
        reference=reference,
        guard=watch,
        serving=serving,
    )


def _watch(file: Path, action: Literal["hold", "mark"], timeout_s: float, key_env: str) -> "GuardServing":
    from strop.app.guarding import GuardServing

    return GuardServing(
        file=file,
        action=action,
        timeout_s=timeout_s,
        approval_key=os.environ.get(key_env) or secrets.token_urlsafe(18),
    )


def _adapter(text: str) -> tuple[str, Path]:
    name, folder = named_path("--adapter", text, "NAME=PATH")
    if not folder.is_dir():
        raise InputError(f"--adapter {text}: no such folder")
    return name, folder

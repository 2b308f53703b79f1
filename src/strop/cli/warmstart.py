"""strop warmstart"""

from pathlib import Path
from typing import Annotated, Literal

import typer

from strop.cli.options import Json, Overrides, Resume
from strop.cli.output import emit
from strop.cli.progress import Progress


def run(
    file: Annotated[Path, typer.Argument(metavar="DEMOS.jsonl", help="Conversations, one a line.")],
    out: Annotated[Path, typer.Option(help="Folder of the adapter, for model.adapter of a run file.")],
    config: Annotated[
        Path | None, typer.Option(metavar="RUN.toml", help="Its [model], [lora] and [warmstart] are used.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="The base model; default: smollm2.")] = None,
    start: Annotated[Path | None, typer.Option(help="LoRA adapter to go on from; default: none.")] = None,
    learn: Annotated[
        Literal["all", "last"] | None, typer.Option(help="Learn all assistant messages, or the last only.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Times that every demonstration is seen.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="At its highest.")] = None,
    micro_batch_tokens: Annotated[int | None, typer.Option(help="Tokens in one forward pass.")] = None,
    heldout: Annotated[str | None, typer.Option(help="Share of scenarios kept back, or a file.")] = None,
    seed: Annotated[int | None, typer.Option(help="Root of all randomness.")] = None,
    overrides: Overrides = None,
    resume: Resume = False,
    json: Json = False,
) -> None:
    """Teach a model from demonstrations first, before it is trained.

    What its assistant says is learned, a message with "train": false or "weight": 0 is not. Ends early
    where the loss on held-out scenarios rises. Exit code 1 where that loss never fell.
    """
    from strop import app
    from strop.config import load_warmstart

    flags = {
        "model.name": _from_here(model),
        "warmstart.learn": learn,
        "warmstart.epochs": epochs,
        "warmstart.learning_rate": learning_rate,
        "warmstart.micro_batch_tokens": micro_batch_tokens,
        "warmstart.heldout": _from_here(heldout),
        "warmstart.seed": seed,
    }
    given = [f"{key}={value}" for key, value in flags.items() if value is not None]
    settings = load_warmstart(config, [*given, *(overrides or [])])
    with Progress() as progress:
        job = app.WarmstartJob(
            file=file, out=out, settings=settings, start=start, resume=resume, progress=progress
        )
        result = app.warmstart(job)
    emit(result, as_json=json, title=f"strop warmstart {file.name}")
    if result["improved"] is False:
        raise typer.Exit(1)


def _from_here(text: str | None) -> str | None:
    """A path on the command line is relative to the working directory, not to the run file."""
    return str(Path(text).absolute()) if text and Path(text).exists() else text

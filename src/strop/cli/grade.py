"""strop grade"""

from pathlib import Path
from typing import Annotated

import typer

from strop.cli.options import Json
from strop.cli.output import emit
from strop.cli.progress import Progress


def run(
    file: Annotated[
        Path, typer.Argument(metavar="FILE.jsonl", help="Trajectories or plain chat logs, one a line.")
    ],
    policy: Annotated[str, typer.Option(help="LoRA folder after training, or a whole model.")],
    reference: Annotated[
        list[str] | None,
        typer.Option(
            help="LoRA folder before training, a whole model, or base; again for a ladder of references. "
            "Default: the bare model."
        ),
    ] = None,
    model: Annotated[str, typer.Option(help="The base model of LoRA folders.")] = "smollm2",
    out: Annotated[Path, typer.Option(help="Where the grades go.")] = Path("grades.jsonl"),
    text: Annotated[
        str, typer.Option("--format", help="Messages without token ids as: chat, plain or plain-all.")
    ] = "chat",
    long: Annotated[
        str, typer.Option(help="Longer than the context: slide over all of it, or the last of it only.")
    ] = "slide",
    max_length: Annotated[
        int | None, typer.Option(help="Tokens shown at once; default: the model's context.")
    ] = None,
    dtype: Annotated[str, typer.Option(help="auto, float32 or bfloat16.")] = "auto",
    tokens: Annotated[bool, typer.Option("--tokens", help="Write single tokens' numbers too.")] = False,
    json: Json = False,
) -> None:
    """Grade every step of trajectories, policy against reference.

    A grade is how much more likely the trained policy is to take the step than the model it was
    trained from. Stopped or killed, the same command goes on where it was.
    """
    from strop import app

    with Progress() as progress:
        job = app.GradeJob(
            file=file,
            out=out,
            policy=policy,
            references=tuple(reference or ()),
            model=model,
            text=text,  # type: ignore[arg-type]
            long=long,  # type: ignore[arg-type]
            max_length=max_length,
            dtype=dtype,  # type: ignore[arg-type]
            tokens=tokens,
            progress=progress,
        )
        result = app.grade_file(job)
    emit(result, as_json=json, title=f"strop grade {file.name}")

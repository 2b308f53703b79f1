"""strop grade"""

from pathlib import Path
from typing import Annotated, Literal

import typer

from strop.cli.engine_options import EngineKind, EnginePython, EngineUrl, engine_config
from strop.cli.options import Json
from strop.cli.output import emit
from strop.cli.progress import Progress
from strop.cli.reward_options import (
    RewardBad,
    RewardGood,
    RewardKind,
    RewardMarker,
    RewardModel,
    rewards_asked,
)

Text = Annotated[
    Literal["chat", "plain", "plain-all"],
    typer.Option("--format", help="How messages without token ids are written out."),
]
Long = Annotated[
    Literal["slide", "last"],
    typer.Option(help="Longer than the context: slide over all of it, or the last of it only."),
]
MaxLength = Annotated[int | None, typer.Option(help="Tokens shown at once; default: the model's context.")]
DType = Annotated[
    Literal["auto", "float32", "bfloat16"], typer.Option(help="Numbers the models are read in.")
]
Reader = Annotated[
    EngineKind, typer.Option(help="Who reads: this process, or a vLLM server, which knows log-probs only.")
]


def run(
    file: Annotated[
        Path, typer.Argument(metavar="FILE.jsonl", help="Trajectories or plain chat logs, one a line.")
    ],
    policy: Annotated[str, typer.Option(help="LoRA folder after training, or a whole model.")],
    reference: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATH",
            help="LoRA folder before training, a whole model, or base; again for a ladder of references. "
            "Default: the bare model.",
        ),
    ] = None,
    model: Annotated[str, typer.Option(help="The base model of LoRA folders.")] = "smollm2",
    out: Annotated[Path, typer.Option(help="Where the grades go.")] = Path("grades.jsonl"),
    text: Text = "chat",
    long: Long = "slide",
    max_length: MaxLength = None,
    dtype: DType = "auto",
    tokens: Annotated[bool, typer.Option("--tokens", help="Write single tokens' numbers too.")] = False,
    reward_model: RewardModel = None,
    reward_kind: RewardKind = "auto",
    reward_marker: RewardMarker = None,
    reward_good: RewardGood = None,
    reward_bad: RewardBad = None,
    engine: Reader = "local",
    engine_python: EnginePython = None,
    engine_url: EngineUrl = None,
    json: Json = False,
) -> None:
    """Grade every step of trajectories, policy against reference.

    A grade is how much more likely the trained policy is to take the step than the model it was
    trained from. Stopped or killed, the same command goes on where it was.
    """
    from strop import app

    rewards = rewards_asked(
        reward_model, kind=reward_kind, marker=reward_marker, good=reward_good, bad=reward_bad
    )
    reader = engine_config(engine, engine_python, engine_url)
    with Progress() as progress:
        job = app.GradeJob(
            file=file,
            out=out,
            policy=policy,
            references=tuple(reference or ()),
            model=model,
            text=text,
            long=long,
            max_length=max_length,
            dtype=dtype,
            tokens=tokens,
            rewards=rewards,
            engine=reader,
            progress=progress,
        )
        result = app.grade_file(job)
    emit(result, as_json=json, title=f"strop grade {file.name}")

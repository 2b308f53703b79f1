"""Options of the verbs that read a grades file."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from strop.cli.options import named_path

if TYPE_CHECKING:
    from strop.app.uses import Asked

Grades = Annotated[Path, typer.Argument(metavar="GRADES.jsonl", help="Grades, as strop grade writes them.")]
Truth = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Lines with trajectory_id and truth, first_wrong_step; the trajectory file will do.",
    ),
]
Baseline = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=FILE",
        help="A further score: lines with trajectory_id and score, or step_scores; repeatable.",
    ),
]
Success = Annotated[float, typer.Option(min=0.0, max=1.0, help="The truth from which a run is a success.")]
Seed = Annotated[int, typer.Option(help="Of resampling and folds.")]
Nested = Annotated[bool, typer.Option(help="Also tune a reading of the grades inside cross-validation.")]


def asked(
    file: Path,
    *,
    truth: Path | None,
    baseline: list[str] | None,
    success: float = 1.0,
    seed: int,
    nested: bool,
) -> "Asked":
    """What the options say. Raises InputError for a baseline that is not NAME=FILE."""
    from strop.app.uses import Asked

    baselines = dict(named_path("--baseline", text, "NAME=FILE") for text in baseline or [])
    return Asked(file=file, truth=truth, baselines=baselines, success=success, seed=seed, nested=nested)

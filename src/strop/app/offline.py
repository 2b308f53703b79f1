"""Grade files of trajectories and write reports: no training."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from strop.app.building import plain_engine
from strop.grader.codec import to_json
from strop.grader.grade import Graded
from strop.grader.grade import grade as grade_steps
from strop.inference.chat import Chat
from strop.report.page import render
from strop.store.run import Run
from strop.training.demonstrations import as_turns
from strop.trajectory import codec
from strop.trajectory.lines import write_objects


def grade(*, file: Path, policy: Path, reference: Path | None, model: str, out: Path) -> dict[str, Any]:
    """Grade every step of a trajectory file, policy against reference, one JSON line a trajectory.

    Recorded token ids are used as they are; plain chat logs are rendered with the model's template.
    Both are adapters over one base, so they share its tokenizer.
    """
    with plain_engine(model, policy, reference) as engine:
        chat = Chat(engine.tokenizer)
        prepared = (as_turns(trajectory, chat) for trajectory in codec.read(file))
        graded, ungraded = 0, 0

        def lines() -> Iterator[dict[str, Any]]:
            nonlocal graded, ungraded
            for one in grade_steps(prepared, engine, decode=engine.decode):
                graded, ungraded = _counted(one, graded, ungraded)
                yield to_json(one)

        write_objects(out, lines())
    return {"graded": graded, "ungraded": ungraded, "out": str(out)}


def _counted(one: Graded, graded: int, ungraded: int) -> tuple[int, int]:
    return (graded, ungraded + 1) if one.ungraded else (graded + 1, ungraded)


def report(folder: Path) -> Path:
    """Write a run's report.html and return its path."""
    return render(Run.view(folder))

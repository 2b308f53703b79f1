"""The three uses of one training's grades on one set of attempts, by the verbs that anybody would use."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from strop import app
from strop.grader.grade import Graded
from strop.trajectory import codec
from strop.trajectory.atomic import replacing
from studies.order_desk import grades


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """`name` of the files in the work folder; `attempts` with their truths, and `graded`, of which those are
    used that are among them; `baselines` files of other scores by name."""

    name: str
    attempts: Path
    graded: Sequence[Graded]
    baselines: Mapping[str, Path] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """What `strop select`, `strop predict` and `strop attribute` print with `--json`."""

    select: Mapping[str, Any]
    predict: Mapping[str, Any]
    attribute: Mapping[str, Any]


def use(question: Question, work: Path) -> Use:
    """All three; kept in the work folder."""
    kept = work / "uses" / f"{question.name}.json"
    if not kept.exists():
        found = _used(question, work)
        with replacing(kept) as file:
            file.write(json.dumps(asdict(found), allow_nan=False).encode())
    return Use(**json.loads(kept.read_text(encoding="utf-8")))


def _used(question: Question, work: Path) -> Use:
    wanted = {trajectory.trajectory_id for trajectory in codec.read(question.attempts)}
    file = grades.write(
        [g for g in question.graded if g.trajectory_id in wanted],
        work / "uses" / f"{question.name}-grades.jsonl",
    )
    asked = app.Asked(file=file, truth=question.attempts, baselines=question.baselines)
    return Use(
        select=app.select_best(asked),
        predict=app.predict_success(asked),
        attribute=app.attribute_failures(asked),
    )

"""A run directory: the one place where a run keeps everything it did.

run.toml                     resolved config; a directory with it is a run
events.jsonl                 append-only, {"time", "kind", ...}
steps.jsonl                  one line a completed training step
evaluations.jsonl            one line a look at the held-out scenarios
trajectories/<part>.jsonl    trajectory lines
verdicts/<part>.jsonl        one line a judged group
grades/<part>.jsonl          one line a trajectory
checkpoints/                 see `strop.store.checkpoints`
inspect/update-0003.jsonl    what step 3 was given, where the learner could do nothing with it
summary.json                 the final object
"""

import json
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from strop.errors import InputError
from strop.store import lines
from strop.trajectory import codec
from strop.trajectory.atomic import TEMPORARY, replacing
from strop.trajectory.lines import dump_line, parse_object, read_objects, write_objects
from strop.trajectory.model import Trajectory

Kind = Literal["trajectories", "verdicts", "grades"]
KINDS: tuple[Kind, ...] = ("trajectories", "verdicts", "grades")
_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class Run:
    """One run directory. One process writes it, by `create` or `open`; any number look at it by `view`.

    Every append is one whole line, on the disk before the call returns. Every other file is replaced
    whole. Methods raise InputError for what cannot be read, StropError for what cannot be written.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self.path = path
        self._clock = clock
        self._appending = threading.Lock()

    @classmethod
    def create(cls, path: Path | str, config_text: str) -> "Run":
        """A new run with `config_text` as its run.toml. Raises InputError where a run is there already."""
        run = cls(Path(path))
        cls.refuse_taken(path)
        with replacing(run.config_path) as file:
            file.write(config_text.encode())
        return run

    @classmethod
    def refuse_taken(cls, path: Path | str) -> None:
        """Raise InputError where `create` would, before anything costly is begun."""
        if cls(Path(path)).config_path.exists():
            raise InputError(f"{path}: a run is there already; choose another name or resume it")

    @classmethod
    def open(cls, path: Path | str) -> "Run":
        """An existing run, to write on: half-written leftovers of a killed process are removed.

        A torn last line of events or steps is cut off, and an event of kind `torn_line` reports it.
        """
        run = cls.view(path)
        for stale in run.path.rglob(f"{TEMPORARY}*"):
            _remove(stale)
        for name in ("steps.jsonl", "evaluations.jsonl", "events.jsonl"):
            if cut := lines.mend(run.path / name):
                run.append_event("torn_line", file=name, bytes=cut)
        return run

    @classmethod
    def view(cls, path: Path | str) -> "Run":
        """An existing run, to read while another process may be writing it; changes nothing."""
        run = cls(Path(path))
        if not run.config_path.is_file():
            raise InputError(f"{path}: no run there (run.toml is missing); check the path")
        return run

    @property
    def name(self) -> str:
        return self.path.resolve().name

    @property
    def config_path(self) -> Path:
        return self.path / "run.toml"

    def config_text(self) -> str:
        return self.config_path.read_text(encoding="utf-8")

    def append_event(self, kind: str, **fields: Any) -> None:
        """Add {"time": seconds since 1970 UTC, "kind": kind, **fields} to events.jsonl."""
        self._append("events.jsonl", {"time": self._clock(), "kind": kind, **fields})

    def append_step(self, metrics: Mapping[str, Any]) -> None:
        """Add a completed step to steps.jsonl; `metrics` must hold its number as a whole `step`."""
        if type(metrics.get("step")) is not int:
            raise InputError("metrics of a step without a whole number under `step`")
        self._append("steps.jsonl", metrics)

    def events(self) -> list[dict[str, Any]]:
        """All events, oldest first."""
        return list(lines.finished_objects(self.path / "events.jsonl"))

    def steps(self) -> list[dict[str, Any]]:
        """All completed steps, oldest first."""
        return list(lines.finished_objects(self.path / "steps.jsonl"))

    def drop_steps_from(self, step: int) -> int:
        """Forget completed steps numbered `step` and above; returns how many. All or nothing."""
        steps = self.steps()
        kept = [metrics for metrics in steps if metrics["step"] < step]
        if len(kept) < len(steps):
            write_objects(self.path / "steps.jsonl", kept)
        return len(steps) - len(kept)

    def append_evaluation(self, line: Mapping[str, Any]) -> None:
        """Add an evaluation to evaluations.jsonl; `steps`, how many were done, must be a whole number."""
        if type(line.get("steps")) is not int:
            raise InputError("an evaluation without a whole number under `steps`")
        self._append("evaluations.jsonl", line)

    def evaluations(self) -> list[dict[str, Any]]:
        """All evaluations, oldest first."""
        return list(lines.finished_objects(self.path / "evaluations.jsonl"))

    def drop_evaluations_after(self, steps: int) -> int:
        """Remove evaluations of a policy with more than `steps` steps; returns how many there were."""
        known = self.evaluations()
        kept = [line for line in known if line["steps"] <= steps]
        if len(kept) < len(known):
            write_objects(self.path / "evaluations.jsonl", kept)
        return len(known) - len(kept)

    def write_trajectories(self, part: str, trajectories: Iterable[Trajectory]) -> None:
        """Replace trajectories/<part>.jsonl."""
        codec.write(self.part_path("trajectories", part), trajectories)

    def read_trajectories(self, part: str) -> Iterator[Trajectory]:
        """The trajectories of a part, one at a time."""
        return codec.read(self.part_path("trajectories", part))

    def write_verdicts(self, part: str, verdicts: Iterable[Mapping[str, Any]]) -> None:
        """Replace verdicts/<part>.jsonl, one JSON object a judged group."""
        write_objects(self.part_path("verdicts", part), verdicts)

    def read_verdicts(self, part: str) -> list[dict[str, Any]]:
        """The verdicts of a part."""
        return list(read_objects(self.part_path("verdicts", part)))

    def write_grades(self, part: str, grades: Iterable[Mapping[str, Any]]) -> None:
        """Replace grades/<part>.jsonl, one JSON object a trajectory."""
        write_objects(self.part_path("grades", part), grades)

    def read_grades(self, part: str) -> list[dict[str, Any]]:
        """The grades of a part."""
        return list(read_objects(self.part_path("grades", part)))

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Replace summary.json."""
        dump_line(summary)
        with replacing(self.path / "summary.json") as file:
            file.write(json.dumps(summary, allow_nan=False, indent=2).encode() + b"\n")

    def summary(self) -> dict[str, Any] | None:
        """The final object, or None where the run has not ended."""
        path = self.path / "summary.json"
        if not path.exists():
            return None
        return parse_object(path.read_text(encoding="utf-8"), where=str(path))

    def parts(self, kind: Kind) -> list[str]:
        """Names of the parts of a kind that are there, sorted."""
        files = (self.path / kind).glob("*.jsonl")
        return sorted(path.stem for path in files if not path.name.startswith("."))

    def part_path(self, kind: Kind, part: str) -> Path:
        """The file of a part. Raises InputError for a name that is not a plain file name."""
        if not _PART.fullmatch(part):
            raise InputError(f"part {part!r}: use letters, digits, dot, dash and underscore only")
        return self.path / kind / f"{part}.jsonl"

    def _append(self, name: str, fields: Mapping[str, Any]) -> None:
        line = dump_line(fields)
        with self._appending:
            lines.append(self.path / name, line)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)

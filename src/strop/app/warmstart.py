"""Learn from a file of demonstrations and leave an adapter that a training run can start from."""

import hashlib
import json
import os
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from strop.app import building
from strop.app.progress import OnProgress, silent
from strop.config import WarmstartSettings, dump
from strop.engines.opening import EmbeddedEngine, prepare, tokenizer
from strop.errors import InputError
from strop.inference.chat import Chat
from strop.store import checkpoints
from strop.store.run import Run
from strop.training.lessons import Demonstration, Lessons, read_demonstrations, split
from strop.training.warmstart import WarmstartPlan, best_line, updates_in, warm_up
from strop.trajectory import codec
from strop.trajectory.atomic import TEMPORARY, replacing, sync_directory, unwritable

RECORD = "warmstart.json"
WORK = ".work"
SCHEMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmstartJob:
    """`file` of demonstrations; `out` is the adapter folder to be; `start` an adapter to go on from."""

    file: Path
    out: Path
    settings: WarmstartSettings
    start: Path | None = None
    resume: bool = False
    progress: OnProgress = silent


def warmstart(job: WarmstartJob) -> dict[str, Any]:
    """Learn, and write the adapter with the lowest held-out loss. Returns what it came to.

    Work is kept in a folder beside `out`, with a checkpoint a measurement, until the adapter is whole and
    takes its name; a killed job goes on with `resume`. Raises InputError for a file with nothing to learn
    and for an `out` that is there.
    """
    work = job.out.with_name(f"{job.out.name}{WORK}")
    _check_place(job, work)
    prepare()
    job.progress("reading")
    lessons = _lessons(job)
    how = job.settings.warmstart
    began = time.perf_counter()
    run = Run.open(work) if job.resume else Run.create(work, _written(job))
    updates = updates_in(len(lessons.learned), how.batch, how.epochs)
    with _engine(job, updates) as engine:
        plan = WarmstartPlan(
            engine=engine,
            run=run,
            learned=lessons.learned,
            heldout=lessons.heldout,
            epochs=how.epochs,
            batch=how.batch,
            every=how.every,
            patience=how.patience,
            seed=how.seed,
            resume=job.resume,
            progress=lambda done, total: job.progress("learning", done, total),
        )
        lines = warm_up(plan)
    result = _result(job, lessons, lines, updates)
    _deliver(job, run, {"schema": SCHEMA, **result, "measurements": lines})
    shutil.rmtree(work, ignore_errors=True)
    return {**result, "seconds": round(time.perf_counter() - began, 3)}


def _check_place(job: WarmstartJob, work: Path) -> None:
    """Before a model is loaded."""
    if job.out.exists():
        raise InputError(f"--out {job.out}: is there already; give another name, or delete it")
    if job.resume:
        if Run.view(work).config_text() != _written(job):
            raise InputError(f"{work}: was begun with other settings or demonstrations; resume it with those")
    elif work.exists():
        raise InputError(f"{work}: a warm start was stopped here; --resume goes on, or delete the folder")


def _written(job: WarmstartJob) -> str:
    """All that the result depends on, as text."""
    how = job.settings.warmstart
    files = [job.file, *([how.heldout] if isinstance(how.heldout, Path) else [])]
    named = [f"# demonstrations sha256 {_digest(file)}\n" for file in files]
    start = f"# from {job.start.absolute()}\n" if job.start else ""
    return "".join([*named, start, dump(job.settings)])


def _digest(file: Path) -> str:
    try:
        with open(file, "rb") as handle:
            return hashlib.file_digest(handle, "sha256").hexdigest()
    except OSError as error:
        raise InputError(f"{file}: cannot be read ({error.strerror}); check the path") from error


def _lessons(job: WarmstartJob) -> Lessons:
    """Demonstrations as the model's tokenizer writes them, split. Raises InputError where none are left."""
    how, chat = job.settings.warmstart, Chat(tokenizer(job.settings.model.name))

    def read(file: Path) -> tuple[list[Demonstration], Counter[str]]:
        return read_demonstrations(
            codec.read(file), chat, learn=how.learn, max_length=job.settings.model.max_length
        )

    kept, dropped = read(job.file)
    if isinstance(how.heldout, Path):
        learned, (heldout, also_dropped) = kept, read(how.heldout)
        dropped += also_dropped
        _refuse_shared(learned, heldout, how.heldout)
    else:
        learned, heldout = split(kept, how.heldout, how.seed)
    lessons = Lessons(learned=learned, heldout=heldout, dropped=dropped)
    if not learned:
        why = ", ".join(f"{count} {reason.replace('_', ' ')}" for reason, count in dropped.items())
        raise InputError(f"{job.file}: nothing to learn from: {why or 'the file holds no conversation'}")
    return lessons


def _refuse_shared(learned: Sequence[Demonstration], heldout: Sequence[Demonstration], file: Path) -> None:
    shared = {each.scenario_id for each in learned} & {each.scenario_id for each in heldout}
    if shared:
        raise InputError(f"{file}: {min(shared)!r} is also learned from; held-out scenarios must be others")


@contextmanager
def _engine(job: WarmstartJob, updates: int) -> Iterator[EmbeddedEngine]:
    job.progress("loading the model")
    engine = building.warmstart_engine(job.settings, job.start, updates)
    try:
        yield engine
    finally:
        engine.close()


def _result(
    job: WarmstartJob, lessons: Lessons, lines: Sequence[Mapping[str, Any]], updates: int
) -> dict[str, Any]:
    first, best = lines[0], best_line(lines)
    before, after = ((line["heldout_loss"] or {}).get("estimate") for line in (first, best))
    return {
        "adapter": str(job.out),
        "model": job.settings.model.name,
        "demonstrations": lessons.counts,
        "learned_tokens": sum(each.tokens for each in lessons.learned),
        "heldout_loss_before": first["heldout_loss"],
        "heldout_loss": best["heldout_loss"],
        "improved": None if before is None or after is None else after < before,
        "updates": best["updates"],
        "epochs": best["epoch"],
        "ended": "early" if lines[-1]["updates"] < updates else "all epochs",
    }


def _deliver(job: WarmstartJob, run: Run, record: Mapping[str, Any]) -> None:
    """The best checkpoint's adapter under the name asked for: whole, or not at all."""
    found = checkpoints.best(run)
    assert found is not None
    aside = job.out.with_name(f"{TEMPORARY}{os.getpid()}-{job.out.name}")
    try:
        shutil.copytree(found.path / "adapter", aside)
        with replacing(aside / RECORD) as file:
            file.write(json.dumps(record, indent=2, allow_nan=False).encode() + b"\n")
        os.rename(aside, job.out)
        sync_directory(job.out.parent)
    except OSError as error:
        raise unwritable(job.out, error) from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)

"""Where a run goes on after it was stopped or killed."""

from typing import Any

from strop.engine import Engine
from strop.errors import InputError
from strop.store import checkpoints
from strop.store.checkpoints import Checkpoint
from strop.store.run import Run
from strop.training.accounting import finished_line


def first_step(run: Run, engine: Engine, *, start: int, resume: bool) -> int:
    """The step to do next. On resume the engine is loaded, serves what it loaded, and lines of steps
    that have to be done again are dropped. Raises InputError for a new run in a used directory.
    """
    if not resume:
        if run.steps():
            raise InputError(f"{run.path}: {len(run.steps())} steps are done here; resume, or use a new name")
        return start
    checkpoint = checkpoints.latest(run)
    if checkpoint is not None:
        _continue_from(run, engine, checkpoint)
    following = start if checkpoint is None else checkpoint.step + 1
    step = _after_idle_steps(run.steps(), following)
    dropped = run.drop_steps_from(step)
    run.append_event("resumed", step=step, dropped_steps=dropped)
    return step


def _continue_from(run: Run, engine: Engine, checkpoint: Checkpoint) -> None:
    engine.load(checkpoint.path)
    published = engine.publish()
    if all(line["step"] != checkpoint.step for line in run.steps()):
        # Killed between checkpoint and line: the step is done, only its line is owed.
        line, seconds = checkpoint.manifest["line"], checkpoint.manifest["seconds"]
        run.append_step(finished_line(line, published, seconds))


def _after_idle_steps(lines: list[dict[str, Any]], step: int) -> int:
    """Steps without an update have no checkpoint, for they changed nothing: their lines stand."""
    idle = {line["step"] for line in lines if not line["updated"]}
    while step in idle:
        step += 1
    return step

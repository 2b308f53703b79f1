"""Checkpoints: directories that exist whole or not at all, and two names, latest and best, for them.

A directory holds what an engine saved and a manifest.json with the size and SHA-256 of every file.
`checkpoints/latest` and `checkpoints/best` are text files that hold a directory's name.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from strop.errors import ModelError, StropError
from strop.store.run import Run
from strop.trajectory.atomic import TEMPORARY, replacing, sync_directory, unwritable
from strop.trajectory.lines import dump_line

SCHEMA_VERSION = 1
MANIFEST = "manifest.json"
Pointer = Literal["latest", "best"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A verified checkpoint: its directory, the step it was saved after, and the caller's manifest."""

    path: Path
    step: int
    manifest: Mapping[str, Any] = field(default_factory=dict)


def save(
    run: Run, step: int, write: Callable[[Path], None], manifest: Mapping[str, Any], *, best: bool = False
) -> Checkpoint:
    """Save a checkpoint after `step` (>= 0) and point `latest`, and `best` when told, at it.

    `write` fills an empty directory. It stands aside under a temporary name until all is on the disk
    and its manifest is written; then it is renamed, then the pointers move. Killed or failed at any
    instant, the pointers lead to a whole checkpoint. Raises StropError where the disk refuses; what
    `write` raises goes through.
    """
    home = _home(run)
    aside = home / f"{TEMPORARY}{os.getpid()}-{step:04d}"
    try:
        _remake(aside)
        write(aside)
        _seal(aside, step, manifest)
        path = home / _free_name(run, step)
        os.rename(aside, path)
        sync_directory(home)
    except StropError:
        raise
    except OSError as error:
        raise unwritable(home / f"{step:04d}", error) from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    for pointer in ("latest", "best") if best else ("latest",):
        with replacing(home / pointer) as file:
            file.write(f"{path.name}\n".encode())
    return Checkpoint(path=path, step=step, manifest=dict(manifest))


def latest(run: Run) -> Checkpoint | None:
    """The newest checkpoint, verified, or None before the first. Raises ModelError for a broken one."""
    return _pointed(run, "latest")


def best(run: Run) -> Checkpoint | None:
    """The checkpoint last saved as best, verified, or None. Raises ModelError for a broken one."""
    return _pointed(run, "best")


def point_best(run: Run, name: str | None) -> None:
    """Point `best` at the checkpoint directory of this name; None, or one that is gone: at nothing."""
    pointer = _home(run) / "best"
    if name is None or not (_home(run) / name).is_dir():
        pointer.unlink(missing_ok=True)
    elif _target(run, "best") != name:
        with replacing(pointer) as file:
            file.write(f"{name}\n".encode())


def verify(path: Path) -> Checkpoint:
    """The checkpoint in a directory. Raises ModelError, one line, where it is not as it was saved."""
    sealed = _manifest(path)
    for name, expected in sealed["files"].items():
        file = path / name
        if not file.is_file():
            raise _broken(path, f"{name} is missing")
        if file.stat().st_size != expected["bytes"]:
            raise _broken(path, f"{name} has {file.stat().st_size} bytes, not {expected['bytes']}")
        if _sha256(file) != expected["sha256"]:
            raise _broken(path, f"{name} has changed since it was saved")
    return Checkpoint(path=path, step=sealed["step"], manifest=sealed["manifest"])


def prune(run: Run, keep: int = 2) -> list[str]:
    """Delete all but the `keep` newest checkpoints; never what latest or best points at. Names deleted."""
    home = _home(run)
    names = sorted((path.name for path in home.glob("[0-9]*") if path.is_dir()), key=_age)
    spared = {*names[max(0, len(names) - keep) :], _target(run, "latest"), _target(run, "best")}
    doomed = [name for name in names if name not in spared]
    for name in doomed:
        aside = home / f"{TEMPORARY}{os.getpid()}-{name}"
        os.rename(home / name, aside)
        shutil.rmtree(aside)
    return doomed


def _home(run: Run) -> Path:
    return run.path / "checkpoints"


def _target(run: Run, pointer: Pointer) -> str | None:
    try:
        return (_home(run) / pointer).read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return None


def _pointed(run: Run, pointer: Pointer) -> Checkpoint | None:
    name = _target(run, pointer)
    if name is None:
        return None
    if Path(name).name != name or not name[:1].isdigit():
        raise ModelError(f"{_home(run) / pointer}: holds {name!r}; write the name of a checkpoint beside it")
    return verify(_home(run) / name)


def _free_name(run: Run, step: int) -> str:
    """The step's directory name; one with a suffix where latest or best needs the plain one."""
    home, name, turn = _home(run), f"{step:04d}", 0
    while (home / name).exists():
        if name not in (_target(run, "latest"), _target(run, "best")):
            shutil.rmtree(home / name)
            break
        turn += 1
        name = f"{step:04d}.{turn}"
    return name


def _age(name: str) -> tuple[int, ...]:
    return tuple(int(number) for number in name.split(".") if number.isdigit())


def _remake(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)


def _seal(path: Path, step: int, manifest: Mapping[str, Any]) -> None:
    files = sorted(file for file in path.rglob("*") if file.is_file())
    sealed = {
        "schema": SCHEMA_VERSION,
        "step": step,
        "files": {
            file.relative_to(path).as_posix(): {"bytes": file.stat().st_size, "sha256": _sha256(file)}
            for file in files
        },
        "manifest": dict(manifest),
    }
    for file in files:
        _sync(file)
    with replacing(path / MANIFEST) as out:
        out.write(dump_line(sealed))


def _manifest(path: Path) -> dict[str, Any]:
    try:
        sealed = json.loads((path / MANIFEST).read_bytes())
        if sealed["schema"] > SCHEMA_VERSION:
            raise ModelError(f"{path}: saved by a newer strop (schema {sealed['schema']}); upgrade strop")
        if type(sealed["step"]) is int and {"files", "manifest"} <= sealed.keys():
            return dict(sealed)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise _broken(path, f"{MANIFEST} cannot be read") from error
    raise _broken(path, f"{MANIFEST} is incomplete")


def _broken(path: Path, what: str) -> ModelError:
    return ModelError(f"{path}: {what}; point latest at another checkpoint or start again")


def _sync(file: Path) -> None:
    with open(file, "rb") as handle:
        os.fsync(handle.fileno())


def _sha256(file: Path) -> str:
    with open(file, "rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()

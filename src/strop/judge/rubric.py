"""Rubrics: what a good attempt is, as text. Files, told apart by the hash of their content."""

import hashlib
from importlib.resources import files
from pathlib import Path

from strop.errors import InputError


def default_rubric() -> str:
    """The rubric shipped in the package: four lines that fit any task with a goal."""
    return files("strop.judge").joinpath("rubric.md").read_text(encoding="utf-8").strip()


def read_rubric(path: Path) -> str:
    """A rubric file's text. Raises InputError where it is missing, empty or not UTF-8."""
    try:
        text = path.read_text(encoding="utf-8-sig").strip()
    except OSError as error:
        raise InputError(f"rubric {path}: cannot be read ({error.strerror}); check the path") from error
    except UnicodeDecodeError as error:
        raise InputError(f"rubric {path}: is not UTF-8 text; convert it") from error
    if not text:
        raise InputError(f"rubric {path}: the file is empty; write what a good attempt does, a line each")
    return text


def rubric_hash(rubric: str) -> str:
    """The first 16 hex digits of the rubric's SHA-256."""
    return hashlib.sha256(rubric.encode("utf-8", "replace")).hexdigest()[:16]

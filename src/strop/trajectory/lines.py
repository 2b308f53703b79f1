"""JSON Lines: one object a line, read with line numbers, written whole or not at all."""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

from strop.errors import InputError
from strop.trajectory.atomic import replacing
from strop.trajectory.fields import kind


def numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Line numbers from 1 and texts of a UTF-8 file's non-blank lines. Raises InputError."""
    try:
        with open(path, "rb") as file:
            for number, raw in enumerate(file, start=1):
                text = _decode(raw, f"{path}:{number}").strip()
                if text:
                    yield number, text
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); check the path") from error


def read_objects(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a JSONL file, one at a time. Raises InputError with file and line."""
    for number, text in numbered_lines(path):
        yield parse_object(text, where=f"{path}:{number}")


def parse_object(text: str, *, where: str) -> dict[str, Any]:
    """The JSON object that `text` is. Raises InputError for anything else, NaN and Infinity included."""
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except RecursionError as error:
        raise InputError(f"{where}: nested too deeply; flatten it") from error
    except ValueError as error:
        raise InputError(f"{where}: not JSON ({error}); write one object a line") from error
    if not isinstance(value, dict):
        raise InputError(f"{where}: a JSON {kind(value)}, not an object; write one object a line")
    return value


def write_objects(path: Path, objects: Iterable[Mapping[str, Any]]) -> None:
    """Replace `path` by these objects, one a line; all or nothing. Raises StropError."""
    with replacing(path) as file:
        for fields in objects:
            file.write(dump_line(fields))


def dump_line(fields: Mapping[str, Any]) -> bytes:
    """One JSON line in ASCII, newline included. Raises InputError for what JSON cannot hold."""
    try:
        return json.dumps(fields, allow_nan=False, separators=(",", ":")).encode() + b"\n"
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"cannot be written as JSON: {error}") from error


def _decode(raw: bytes, where: str) -> str:
    try:
        return raw.decode("utf-8-sig" if where.endswith(":1") else "utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{where}: not UTF-8 (byte {error.start}); convert the file to UTF-8") from error


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number that JSON knows")

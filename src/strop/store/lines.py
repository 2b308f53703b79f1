"""Append-only JSON Lines that survive a kill: whole lines on the disk, a torn last one cut off."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from strop.errors import InputError
from strop.trajectory.atomic import unwritable
from strop.trajectory.lines import parse_object

_BLOCK = 1 << 16


def append(path: Path, line: bytes) -> None:
    """Add one line, newline included, and flush it to the disk.

    Where the disk refuses midway the file is cut back to what it was. Raises StropError.
    """
    try:
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            _append_whole(handle, line)
        finally:
            os.close(handle)
    except OSError as error:
        raise unwritable(path, error) from error


def mend(path: Path) -> int:
    """Cut off a last line that is unfinished or not a JSON object; returns the bytes cut, mostly 0.

    A missing file counts as whole.
    """
    if not path.exists():
        return 0
    with open(path, "r+b") as file:
        size = file.seek(0, os.SEEK_END)
        start, last = _last_line(file.fileno(), size)
        if size == start or (last.endswith(b"\n") and _is_object(last, path)):
            return 0
        file.truncate(start)
        os.fsync(file.fileno())
        return size - start


def finished_objects(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a file that may be growing: an unfinished last line is not there yet.

    A missing file is empty. Raises InputError, with the line number, for a finished line that is broken.
    """
    if not path.exists():
        return
    with open(path, "rb") as file:
        for number, raw in enumerate(file, start=1):
            if raw.endswith(b"\n"):
                yield parse_object(raw.decode("utf-8", errors="replace"), where=f"{path}:{number}")


def _append_whole(handle: int, line: bytes) -> None:
    before = os.fstat(handle).st_size
    try:
        rest = memoryview(line)
        while rest:
            rest = rest[os.write(handle, rest) :]
        os.fsync(handle)
    except OSError:
        with suppress(OSError):
            os.ftruncate(handle, before)
        raise


def _last_line(handle: int, size: int) -> tuple[int, bytes]:
    """Offset and bytes of the last line; (size, b"") for an empty file."""
    tail, start = b"", size
    while start > 0:
        start = max(0, start - _BLOCK)
        tail = os.pread(handle, size - start, start)
        newline = tail.rfind(b"\n", 0, len(tail) - 1)
        if newline >= 0:
            return start + newline + 1, tail[newline + 1 :]
    return (0, tail) if size else (size, b"")


def _is_object(line: bytes, path: Path) -> bool:
    try:
        parse_object(line.decode("utf-8", errors="replace"), where=str(path))
    except InputError:
        return False
    return True

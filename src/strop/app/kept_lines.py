"""JSON lines that are written one by one as work goes on, so that a killed process goes on where it was."""

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from strop.trajectory.atomic import unwritable
from strop.trajectory.lines import dump_line, parse_object

See = Callable[[Mapping[str, Any]], None]
"""Told of each line, kept or new."""


def kept(path: Path, see: See) -> int:
    """How many lines are whole, each shown to `see`; a torn one at the end is cut off."""
    if not path.exists():
        return 0
    done, whole = 0, 0
    with open(path, "r+b") as file:
        for raw in file:
            if not raw.endswith(b"\n"):
                break
            see(parse_object(raw.decode(), where=f"{path}:{done + 1}"))
            done, whole = done + 1, whole + len(raw)
        file.truncate(whole)
    return done


def append(path: Path, lines: Iterable[Mapping[str, Any]], see: See) -> None:
    """Write each line as it comes, and all to the disk at the end. Raises StropError."""
    try:
        with open(path, "ab") as file:
            for line in lines:
                put(file, line)
                see(line)
            os.fsync(file.fileno())
    except OSError as error:
        raise unwritable(path, error) from error


def put(file: BinaryIO, line: Mapping[str, Any]) -> None:
    """At once to the system, so that a killed process loses nothing that was done."""
    file.write(dump_line(line))
    file.flush()

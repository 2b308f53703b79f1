"""Files that are replaced whole or not at all."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from strop.errors import StropError

TEMPORARY = ".tmp-"
"""Prefix of every file and directory that is not finished; whoever owns the directory may delete it."""


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A binary file that becomes `path` when the block ends well, and vanishes when it does not.

    It is written beside `path`, flushed to the disk and renamed over it, so that a reader sees the
    old bytes or the new ones. Missing parent directories are made. Raises StropError where the disk
    refuses (full, read-only, no permission); `path` is then as it was.
    """
    aside = path.with_name(f"{TEMPORARY}{os.getpid()}-{path.name}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(aside, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
        sync_directory(path.parent)
    except StropError:
        raise
    except OSError as error:
        raise unwritable(path, error) from error
    finally:
        with suppress(OSError):
            aside.unlink(missing_ok=True)


def check_place(path: Path) -> None:
    """Raise StropError where `replacing(path)` is bound to fail: no folder can be there, no right to write.

    Nothing is written. For work that takes long or costs money before it writes.
    """
    home = next(folder for folder in path.absolute().parents if os.path.lexists(folder))
    if not home.is_dir():
        raise unwritable(path, NotADirectoryError(errno.ENOTDIR, "", str(home)))
    if not os.access(home, os.W_OK | os.X_OK):
        raise unwritable(path, PermissionError(errno.EACCES, os.strerror(errno.EACCES)))


def sync_directory(path: Path) -> None:
    """Flush the directory's names to the disk, where the platform can."""
    with suppress(OSError):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def unwritable(path: Path, error: OSError) -> StropError:
    """The one line for a file that could not be written."""
    in_the_way = isinstance(error, FileExistsError | NotADirectoryError)
    reason = "a file is where a folder is needed" if in_the_way else error.strerror or str(error)
    return StropError(f"{path}: cannot be written ({reason}); what was there before is unchanged")

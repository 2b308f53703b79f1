"""Where things go: free space and permission, and the port that strop serve takes."""

import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from strop.engines.doctor.need import lora_numbers
from strop.engines.doctor.plan import Plan
from strop.engines.doctor.shape import EMBEDDED, folder_of, hub_cache
from strop.engines.embedded import SMOLLM2, cache_root

SERVE_PORT = 8000
LOGS = 200_000_000
"""Trajectories, verdicts and the report of a run: a guess on the high side for small runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A folder, made or not: bytes that are free and that are needed there, and whether it can be written."""

    what: str
    path: str
    free: int
    needed: int
    writable: bool

    @property
    def problem(self) -> str | None:
        """What stands in the way there, in words; None: nothing."""
        if not self.writable:
            return f"{self.path}: cannot be written, {self.what} go there"
        if self.free < self.needed:
            need, have = self.needed / 1e9, self.free / 1e9
            return f"{self.path}: {have:.1f} GB are free, {self.what} need {need:.1f} GB"
        return None


def places(run: Path, model: str, plan: Plan | None, checkpoints: int) -> Iterator[Place]:
    """The folder of a run, and of what is fetched once; `checkpoints` so many are kept.

    A checkpoint holds the adapter and AdamW's two moments in float32, 12 bytes a number.
    """
    size = 12 * lora_numbers(plan) if plan else 0
    yield _place("runs", run, LOGS + size * (checkpoints + 2))
    here = folder_of(model) is not None
    yield _place(
        "models and replies", cache_root(), SMOLLM2.bytes_needed if model == EMBEDDED and not here else 0
    )
    if model != EMBEDDED and not here:
        yield _place("models of the hub", hub_cache(), 0)


def _place(what: str, path: Path, needed: int) -> Place:
    there = path.absolute()
    while not there.exists():
        there = there.parent
    free, writable = shutil.disk_usage(there).free, os.access(there, os.W_OK)
    return Place(what=what, path=str(path), free=free, needed=needed, writable=writable)


def port_is_free(port: int, host: str = "127.0.0.1") -> bool:
    """Whether a server could listen there; port 0: whether at any port."""
    with closing(socket.socket()) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True

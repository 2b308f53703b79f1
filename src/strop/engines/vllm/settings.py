"""Which vLLM serves, and how it is started or found."""

import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmSettings:
    """How to come by a vLLM server.

    `python` has vLLM installed and starts one; where `url` is given, the server there is used instead.
    `args` are put behind strop's own arguments, so they win. `start_timeout_s` bounds the time until it
    answers, in seconds, and `max_restarts` the restarts in a row between which nothing was answered.
    `folder` holds the adapters for the server to read (None: a temporary one).
    """

    python: Path = Path(sys.executable)
    url: str | None = None
    args: tuple[str, ...] = ()
    start_timeout_s: float = 600.0
    max_restarts: int = 3
    folder: Path | None = None

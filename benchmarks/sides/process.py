"""A side as a process: started once, told a line, its answer read."""

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).parents[2]


class Side:
    """A context manager over a process that answers each line with one of JSON.

    Where there is a `job` it is told first, and `loaded` is the answer. The last line that a process that
    ended said on standard error stands in the message; STROP_BENCH_VERBOSE=1 shows all of it as it comes.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        environment: Mapping[str, str],
        job: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = name
        self.loaded: Mapping[str, Any] = {}
        self._command, self._environment, self._job = command, environment, job

    def __enter__(self) -> Self:
        # A file and not a pipe: nobody reads while the side is at work, and a full pipe would stop it.
        self._said = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None if os.environ.get("STROP_BENCH_VERBOSE") else self._said,
            text=True,
            env=self._environment,
            cwd=ROOT,
        )
        if self._job is not None:
            self.loaded = self.ask(json.dumps(self._job))
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()
        self._said.close()

    def ask(self, line: str) -> dict[str, Any]:
        """What the process answers to a line. Raises SystemExit, one line, where it ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
            said = self._process.stdout.readline()
        except BrokenPipeError:
            said = ""
        if not said:
            raise SystemExit(f"{self.name}: ended with code {self._process.wait()}: {self._last_words()}")
        answer: dict[str, Any] = json.loads(said)
        return answer

    def _last_words(self) -> str:
        self._said.seek(0)
        lines = self._said.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it says nothing"

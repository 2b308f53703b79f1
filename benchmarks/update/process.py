"""A side of the benchmark as a process: started on a job, told to update, its answers read."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

from strop.errors import InputError

ROOT = Path(__file__).parents[2]
PEER = Path(__file__).with_name("peer.py")
DType = Literal["float32", "bfloat16"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What both sides do; `batch` is rows a micro-batch for the peer, nodes a packed tree for us.

    `model`, `adapter` are folders, `rows` the file of the update. `gradients` names the file for the
    gradients of the first update, "" for none.
    """

    model: str
    adapter: str
    rows: str
    shape: str
    groups: int
    attempts: int
    do: Literal["prepare", "train"] = "train"
    batch: int = 1
    dtype: DType = "float32"
    rank: int = 8
    first_layer: int = 0
    checkpointing: bool = False
    gradients: str = ""
    learning_rate: float = 1e-4
    betas: tuple[float, float] = (0.9, 0.99)
    max_grad_norm: float = 1.0
    clip_low: float = 0.2
    clip_high: float = 0.28
    dual_clip: float = 3.0


class Side:
    """A context manager over the process. `loaded` is what it said when all was loaded."""

    def __init__(self, job: Job, peer_python: str | None = None) -> None:
        ours = [sys.executable, "-m", "benchmarks.update.ours"]
        self._command = ours if peer_python is None else [peer_python, "-I", str(PEER)]
        self._job = job
        self.name = "ours" if peer_python is None else "peer"

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if not os.environ.get("STROP_BENCH_VERBOSE") else None,
            text=True,
            env=_environment(),
            cwd=ROOT,
        )
        self._say(json.dumps(asdict(self._job)))
        self.loaded = self._answer()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def update(self) -> Mapping[str, Any]:
        """One update: `seconds`, `cpu_seconds`, `loss`, and `peak` and `held` bytes. Raises InputError."""
        self._say("update")
        return self._answer()

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            self._died()

    def _answer(self) -> Mapping[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._died()
        answer: Mapping[str, Any] = json.loads(line)
        return answer

    def _died(self) -> None:
        _, said = self._process.communicate()
        last = (said or "it says nothing").strip().splitlines()[-1]
        raise InputError(f"{self.name}: ended with code {self._process.returncode}: {last}")


def prepared(job: Job) -> Mapping[str, int]:
    """Make the adapter and the update's file; its `tokens` and its `unique` ones."""
    with Side(replace(job, do="prepare", batch=2048)) as side:
        return side.loaded


def peer_version(python: str) -> str:
    """The version of trl under that Python. Raises InputError, one line, where it has none."""
    probe = "from importlib.metadata import version; import trl; print(version('trl'))"
    try:
        asked = subprocess.run(
            [python, "-I", "-c", probe], capture_output=True, text=True, timeout=300, env=_environment()
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputError(f"{python}: cannot be run ({error}); name a Python that has trl") from error
    if asked.returncode:
        said = (asked.stderr.strip().splitlines() or ["it says nothing"])[-1]
        raise InputError(f"{python}: trl cannot be imported ({said}); see --help for how to make it")
    return asked.stdout.strip().splitlines()[-1]


def _environment() -> dict[str, str]:
    """The same for both sides: no hub, and OpenMP's threads do not spin for one another."""
    return {
        **os.environ,
        "HF_HUB_OFFLINE": "1",
        "WANDB_MODE": "disabled",
        "TRL_EXPERIMENTAL_SILENCE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "GOMP_SPINCOUNT": "1000",
    }

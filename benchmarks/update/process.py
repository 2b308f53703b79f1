"""What both sides of the benchmark are told, and the processes that they are."""

import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

from benchmarks.sides.peer import PeerPackage
from benchmarks.sides.process import Side

SCRIPT = Path(__file__).with_name("peer.py")
PACKAGE = PeerPackage(name="trl", module="trl", variable="STROP_TRL_PYTHON")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What both sides do; `batch` is rows a micro-batch for the peer, nodes a packed tree for us.

    `model`, `adapter` are folders, `rows` the file of the update. `kept` begins the names of two files of
    the first update, `.gradients` before its optimizer step and `.weights` after it; "" for none. `dtype`
    is ours; the peer has float32.
    """

    model: str
    adapter: str
    rows: str
    shape: str
    groups: int
    attempts: int
    do: Literal["prepare", "train"] = "train"
    batch: int = 1
    dtype: Literal["float32", "bfloat16"] = "float32"
    rank: int = 8
    first_layer: int = 0
    checkpointing: bool = False
    kept: str = ""
    learning_rate: float = 1e-4
    betas: tuple[float, float] = (0.9, 0.99)
    max_grad_norm: float = 1.0
    clip_low: float = 0.2
    clip_high: float = 0.28
    dual_clip: float = 3.0


def update_side(job: Job, peer_python: str | None = None) -> Side:
    """Our side, or the peer's under that Python.

    To "update" it answers with `seconds`, `cpu_seconds`, `loss`, and `peak` and `held` bytes.
    """
    ours = [sys.executable, "-m", "benchmarks.update.ours"]
    name, command = ("ours", ours) if peer_python is None else ("peer", [peer_python, "-I", str(SCRIPT)])
    return Side(name, command, environment(), asdict(job))


def prepared(job: Job) -> Mapping[str, int]:
    """Make the adapter and the update's file; its `tokens` and its `unique` ones."""
    with update_side(replace(job, do="prepare", batch=2048)) as side:
        return side.loaded


def environment() -> dict[str, str]:
    """The same for both sides: no hub, and OpenMP's threads do not spin for one another."""
    return {
        **os.environ,
        "HF_HUB_OFFLINE": "1",
        "WANDB_MODE": "disabled",
        "TRL_EXPERIMENTAL_SILENCE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "GOMP_SPINCOUNT": "1000",
    }

"""The settings that decide how much memory a run needs."""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from strop.config import RunConfig
from strop.engines.adapter_files import ADAPTER_CONFIG
from strop.engines.doctor.shape import Linear, Shape, embedded_shape

Number = Literal["float32", "bfloat16"]
JUDGE_SLOTS = 16
"""Conversations with the embedded judge at once; a test holds it against the engine's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to be run. `sessions`: most attempts that are open at once; `nodes`: tokens of a packed tree.

    `at_once` says whether a step's attempts are sampled while the step before is learned; `judge`: an
    embedded judge answers; `judged_meanwhile`: while attempts are sampled. `vllm_args` are None where this
    process serves, or a server that is there already.
    """

    shape: Shape
    number: Number
    device: str
    rank: int
    targets: tuple[str, ...] | None
    first_layer: int
    nodes: int
    checkpointing: bool
    slots: int
    sessions: int
    max_length: int
    at_once: bool = False
    judge: bool = True
    judged_meanwhile: bool = False
    serves: bool = True
    vllm_args: tuple[str, ...] | None = None
    vllm_python: Path | None = None

    @property
    def bytes(self) -> int:
        """Of one number."""
        return 4 if self.number == "float32" else 2

    @property
    def token_bytes(self) -> int:
        """Of a token's keys and values, in all layers."""
        return 2 * self.shape.layers * self.shape.keys * self.bytes

    @property
    def linears(self) -> list[Linear]:
        """The linear layers that carry the LoRA."""
        return [one for one in self.shape.linears if self.targets is None or one.name in self.targets]


def plan_of(config: RunConfig, shape: Shape, device: str, *, native_bfloat16: bool) -> Plan:
    """The plan of a run file on `device` ("cpu", "cuda", "mps"), as strop would choose where it says "auto".

    `native_bfloat16`: whether that device computes in bfloat16.
    """
    rollout, training, engine = config.rollout, config.training, config.engine
    rank, targets = _lora(config)
    chosen: Number = "bfloat16" if native_bfloat16 else "float32"
    local = engine.kind == "local"
    return Plan(
        shape=shape,
        number=chosen if config.model.dtype == "auto" else config.model.dtype,
        device=device,
        rank=rank,
        targets=targets,
        first_layer=config.lora.first_layer,
        nodes=training.micro_batch_tokens,
        checkpointing=config.model.checkpointing,
        slots=rollout.slots,
        sessions=_sessions(config),
        max_length=config.model.max_length,
        at_once=training.max_staleness > 0,
        judge=config.judge.embedded and judge_fits(config, shape),
        judged_meanwhile=config.overlapping,
        serves=local,
        vllm_args=None if local or engine.url else engine.args,
        vllm_python=None if local or engine.url else engine.python or Path(sys.executable),
    )


def judge_fits(config: RunConfig, shape: Shape) -> bool:
    """Whether an embedded judge can be served over the model: the one shipped is an adapter of smollm2."""
    return config.judge.adapter is not None or shape.linears == embedded_shape().linears


def _sessions(config: RunConfig) -> int:
    """Attempts that are open at once: of a step, or of all held-out scenarios; a file may hold any number."""
    rollout, evaluation = config.rollout, config.evaluation
    heldout = evaluation.heldout if isinstance(evaluation.heldout, int) else rollout.slots
    judged = min(heldout, evaluation.judged_groups) * evaluation.judged_attempts
    return max(rollout.groups_per_step * rollout.attempts, heldout * evaluation.attempts, judged)


def _lora(config: RunConfig) -> tuple[int, tuple[str, ...] | None]:
    """Rank, and the names of the layers that carry it (None: all): of the adapter, else of the run file."""
    own = None if config.lora.targets == "all-linear" else tuple(config.lora.targets)
    written = {} if config.model.adapter is None else _adapter(config.model.adapter)
    names = written.get("target_modules")
    targets = tuple(name.rpartition(".")[2] for name in names) if isinstance(names, list) else own
    rank = written.get("r")
    return rank if isinstance(rank, int) else config.lora.rank, targets


def _adapter(folder: Path) -> Mapping[str, Any]:
    """adapter_config.json, empty where it cannot be read: whoever opens the adapter says why."""
    try:
        found = json.loads((folder / ADAPTER_CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}

"""What this machine has that strop needs: cores, memory, number formats, accelerators."""

import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from strop.engines.doctor.cgroup import allowance

BFLOAT16 = ("avx512_bf16", "amx_bf16")
DEVICES = ("nvidia0", "nvidiactl", "dxg", "kfd")
"""Device files of accelerators that torch calls cuda; without one torch need not be asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """A CUDA device: its name, its memory and what of it is free now, in bytes."""

    name: str
    memory: int
    free: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """`cores` and `memory` (bytes) are what this process may use: a container's limit where it is lower.

    `physical` is what the machine has, `free` what nobody uses now. `bfloat16`: the processor computes in
    it. None is a figure that this system does not give.
    """

    python: str
    system: str
    cores: float
    memory: int | None
    physical: int | None
    free: int | None
    bfloat16: bool | None
    cuda: tuple[Accelerator, ...] = ()
    mps: bool = False

    def device(self, asked: str) -> str:
        """The kind of device a run gets that asks for `asked`, "auto" or one by name."""
        if asked != "auto":
            return asked
        return "cuda" if self.cuda else "mps" if self.mps else "cpu"

    def computes_bfloat16(self, device: str) -> bool:
        """Whether "auto" means bfloat16 there."""
        return device != "cpu" or bool(self.bfloat16)


def this_machine(torch_version: str | None) -> Machine:
    """The machine as it is now. torch is imported where it is installed and there may be an accelerator."""
    limits, physical = allowance(), physical_memory()
    bounds = [bound for bound in (physical, limits.memory) if bound is not None]
    memory = min(bounds, default=None)
    free = available_memory()
    cuda, mps = _accelerators() if torch_version and may_have_accelerator() else ((), False)
    return Machine(
        python=platform.python_version(),
        system=f"{platform.system()} {platform.machine()}",
        cores=min(float(cores()), limits.cores or float("inf")),
        memory=memory,
        physical=physical,
        free=free if free is None or memory is None else min(free, memory),
        bfloat16=has_cpu_flag(BFLOAT16),
        cuda=cuda,
        mps=mps,
    )


def cores() -> int:
    """Cores that this process may be scheduled on."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def physical_memory() -> int | None:
    """Bytes of physical memory."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None


def available_memory(meminfo: Path = Path("/proc/meminfo")) -> int | None:
    """Bytes that can be had without taking them from another process (Linux)."""
    try:
        lines = meminfo.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    found = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return int(found[0]) * 1024 if found else None


def has_cpu_flag(flags: Sequence[str], cpuinfo: Path = Path("/proc/cpuinfo")) -> bool | None:
    """Whether the processor names one of `flags` among its abilities; None where the system does not tell."""
    try:
        lines = cpuinfo.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    own = next((line.partition(":")[2].split() for line in lines if line.startswith("flags")), [])
    return any(flag in own for flag in flags)


def may_have_accelerator(devices: Path = Path("/dev")) -> bool:
    """Whether it is worth asking torch, which takes seconds to load."""
    return sys.platform != "linux" or any((devices / name).exists() for name in DEVICES)


def _accelerators() -> tuple[tuple[Accelerator, ...], bool]:
    import torch

    found = []
    for index in range(torch.cuda.device_count()):
        free, memory = torch.cuda.mem_get_info(index)
        found.append(Accelerator(name=torch.cuda.get_device_name(index), memory=memory, free=free))
    return tuple(found), torch.backends.mps.is_available()

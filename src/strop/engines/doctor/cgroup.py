"""What a control group really allows: in a container less than the machine has (Linux)."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")
UNLIMITED = 1 << 60
"""Version 1 writes no limit as the largest number of pages."""


class Allowance(NamedTuple):
    """Bytes of memory, and cores' worth of time; None: no limit."""

    memory: int | None
    cores: float | None


def allowance(root: Path = ROOT, own: Path = OWN) -> Allowance:
    """The tightest limits of this process's group and of those above it; None where there is none."""
    memory, cores = list[int](), list[float]()
    for group in _groups(root, own):
        memory += _numbers(group / "memory.max")[:1] + _numbers(group / "memory.limit_in_bytes")[:1]
        cores += _share(_numbers(group / "cpu.max"))
        cores += _share(_numbers(group / "cpu.cfs_quota_us") + _numbers(group / "cpu.cfs_period_us"))
    bounded = [limit for limit in memory if 0 < limit < UNLIMITED]
    return Allowance(min(bounded, default=None), min(cores, default=None))


def _groups(root: Path, own: Path) -> Iterator[Path]:
    """Folders of this process's groups, one a controller in version 1, and all above them."""
    try:
        lines = own.read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        mounts = [root / name for name in controllers.split(",")] if controllers else [root, root / "unified"]
        for mount in mounts:
            folder = mount / path.strip("/")
            while folder.is_relative_to(mount):
                yield folder
                folder = folder.parent


def _numbers(file: Path) -> list[int]:
    """The numbers in a file, none where one of its words is not a number ("max") or there is no file."""
    try:
        return [int(word) for word in file.read_text(encoding="utf-8").split()]
    except (OSError, ValueError):
        return []


def _share(numbers: list[int]) -> list[float]:
    """Quota over period, where both are there and bound anything."""
    return [numbers[0] / numbers[1]] if len(numbers) == 2 and min(numbers) > 0 else []

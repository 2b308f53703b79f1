"""What a process holds (Linux). Peers that run without this package have the same lines of their own."""

import resource
from pathlib import Path


def peak_bytes() -> int:
    """The most memory this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def held_bytes() -> int:
    """The memory this process holds now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

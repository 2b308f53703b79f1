"""Keep the C library's heap small (glibc), so that the peak of one stage is not held through the next."""

import ctypes
import sys

_M_ARENA_MAX = -8
_M_MMAP_THRESHOLD = -3
_LARGE = 1 << 18


def share_heap() -> None:
    """Let all threads allocate from one heap. Where there is no glibc nothing is done.

    By default each thread gets a heap of its own, and what one has freed another cannot use: tensors of
    the learner, the sampler and its two halves lie in four heaps, each as large as its own peak.
    """
    mallopt = _glibc("mallopt")
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, 1)


def map_large_blocks() -> None:
    """Give every block of a quarter megabyte its own pages, which go back to the system when it is freed.

    torch asks for aligned blocks, and the holes that they leave do not fit the next of their size: without
    this a training step in float32 holds twice what it keeps. New pages cost time, so what is needed for a
    moment only has its memory from `scratch`. Where there is no glibc nothing is done.
    """
    mallopt = _glibc("mallopt")
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGE)


def release() -> None:
    """Give what is free at the heap's end and in whole pages back to the system.

    Tensors of many sizes leave holes that the allocator keeps; after a training step of the embedded
    model that is half a gigabyte.
    """
    trim = _glibc("malloc_trim")
    if trim is not None:
        trim(0)


def _glibc(name: str) -> "ctypes._NamedFuncPointer | None":
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None

"""Give freed memory back to the system, so that the peak of one stage is not held through the next."""

import ctypes
import sys


def release() -> None:
    """Trim the C library's heap where it can be (glibc); elsewhere nothing is done.

    Tensors of many sizes leave holes that the allocator keeps; after a training step of the embedded
    model that is half a gigabyte.
    """
    if sys.platform != "linux":
        return
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)

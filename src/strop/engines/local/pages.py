"""Weights that are pages of a mapped file: given back after use, and read again from the system's cache.

A model that is read straight from its file holds no memory of its own, only pages that the system may take
back. Until it does they count as held: a whole model, though one layer is used at a time. On Linux they can
be given back at once; to have them again costs a millisecond a layer of the embedded model. Weights that
were converted when they were loaded are not of a file, and stay.
"""

import ctypes
import mmap
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor, nn

_MADV_DONTNEED = 4
_HEADER = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) \S+ \S+ \S+ (\d+) ")


class Span(NamedTuple):
    """Whole pages, by address: [start, stop)."""

    start: int
    stop: int


class Pages:
    """The pages of this process that are of files and that nobody has written to, as of when it was made.

    Who gives pages of a tensor back must not have written to it.
    """

    def __init__(self) -> None:
        self._files = _clean_files() if sys.platform == "linux" else []

    def of(self, tensors: Iterable[Tensor]) -> list[Span]:
        """Those that lie whole within one of the tensors."""
        page = mmap.PAGESIZE
        spans = []
        for tensor in tensors:
            if tensor.device.type != "cpu" or not tensor.is_contiguous():
                continue
            start, stop = tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes
            span = Span(-(-start // page) * page, stop // page * page)
            if span.start < span.stop and any(f.start <= start and stop <= f.stop for f in self._files):
                spans.append(span)
        return spans

    def lend(self, model: nn.Module) -> None:
        """From now on each module of the model gives its own pages back when it has run."""
        for module in model.modules():
            spans = self.of(module.parameters(recurse=False))
            if spans:
                module.register_forward_hook(_returning(spans))


def give_back(spans: Sequence[Span]) -> None:
    """Let the system have these pages; whoever reads them next gets them from the file."""
    for start, stop in spans:
        _madvise()(ctypes.c_void_p(start), ctypes.c_size_t(stop - start), _MADV_DONTNEED)


def _returning(spans: Sequence[Span]) -> Callable[..., None]:
    # A plain function: copies of the module share it, where a method's object would be copied with them.
    def hook(*_: Any) -> None:
        give_back(spans)

    return hook


def _madvise() -> "ctypes._NamedFuncPointer":
    return ctypes.CDLL(None).madvise


def _clean_files() -> list[Span]:
    """Mappings of files without a page that was written to: what is given back can be had again."""
    found = []
    for mapping in re.split(r"\n(?=[0-9a-f]+-[0-9a-f]+ )", Path("/proc/self/smaps").read_text()):
        header = _HEADER.match(mapping)
        own = re.findall(r"^(?:Anonymous|Swap):\s+(\d+)", mapping, re.MULTILINE)
        if header and header[3] != "0" and own and not any(map(int, own)):
            found.append(Span(int(header[1], 16), int(header[2], 16)))
    return found

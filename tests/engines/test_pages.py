"""Pages of weights' files: given back, read again, and never those of what was written to."""

import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from strop.engines.local.pages import Pages, Span, give_back

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="pages are given back on Linux only")
PAGE = 4096
FLOATS = 4 * PAGE


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A million floats, the number of each."""
    save_file({"weight": torch.arange(FLOATS, dtype=torch.float32)}, tmp_path / "weights")
    return tmp_path / "weights"


def mapped(file: Path) -> torch.Tensor:
    """The file's floats as pages of it, after its header."""
    whole = torch.UntypedStorage.from_file(str(file), shared=False, nbytes=file.stat().st_size)
    return torch.empty(0).set_(whole, (file.stat().st_size - 4 * FLOATS) // 4, (FLOATS,))


def resident(span: Span) -> int:
    """Kilobytes of the mapping around a span that this process holds."""
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first = line.split()[0]
        if "-" in first and not first.endswith(":"):
            start, stop = (int(side, 16) for side in first.split("-"))
            inside = start <= span.start < stop
        elif inside and first == "Rss:":
            return int(line.split()[1])
    return 0


def test_given_back_pages_are_not_held_and_come_back_as_they_were(file: Path) -> None:
    weight = mapped(file)
    assert float(weight.sum()) == FLOATS * (FLOATS - 1) / 2
    (span,) = Pages().of([weight])
    before = resident(span)
    give_back([span])
    assert resident(span) <= before - (span.stop - span.start) // 1024
    torch.testing.assert_close(weight, torch.arange(FLOATS, dtype=torch.float32), rtol=0, atol=0)


def test_spans_are_whole_pages_within_the_tensor(file: Path) -> None:
    weight = mapped(file)
    (span,) = Pages().of([weight])
    assert span.start % PAGE == span.stop % PAGE == 0
    assert weight.data_ptr() <= span.start < weight.data_ptr() + PAGE
    assert span.stop <= weight.data_ptr() + weight.nbytes < span.stop + PAGE


def test_memory_of_no_file_and_what_was_written_to_are_left_alone(file: Path) -> None:
    written, other = mapped(file), torch.arange(FLOATS, dtype=torch.float32)
    written[7] = -1
    assert Pages().of([written, other]) == []


def test_a_module_gives_its_own_back_when_it_has_run(file: Path) -> None:
    side = int(FLOATS**0.5)
    layer = nn.Linear(side, side, bias=False)
    layer.weight = nn.Parameter(mapped(file).view(side, side), requires_grad=False)
    pages = Pages()
    pages.lend(layer)
    (span,) = pages.of([layer.weight])
    before = float(layer(torch.ones(1, side)).sum())
    assert resident(span) <= 64
    assert float(layer(torch.ones(1, side)).sum()) == before

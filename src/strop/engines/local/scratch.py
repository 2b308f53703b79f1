"""Memory for numbers that are needed for a moment only, used again instead of asked for again.

A block that goes back to the system costs its pages anew at the next call: in a training step on the
processor, where large blocks have pages of their own, a sixth of the time.
"""

from math import prod

import torch
from torch import Tensor


class Scratch:
    """Float32 tensors by name, on the CPU. For one thread; none may be kept past the work it is for."""

    def __init__(self) -> None:
        self._held: dict[str, Tensor] = {}

    def __call__(self, name: str, *shape: int) -> Tensor:
        """A tensor of any contents; with the same name it is the same memory each time."""
        size = prod(shape)
        held = self._held.get(name)
        if held is None or len(held) < size:
            held = self._held[name] = torch.empty(size, dtype=torch.float32)
        return held[:size].view(shape)

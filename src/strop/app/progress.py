"""How a run tells of its progress."""

from typing import Protocol


class OnProgress(Protocol):
    """`done` of `total` units of `stage` (total 0: not known); `step` of `steps` training steps are
    finished (steps 0: not in training)."""

    def __call__(self, stage: str, done: int = 0, total: int = 0, step: int = 0, steps: int = 0) -> None: ...


def silent(stage: str, done: int = 0, total: int = 0, step: int = 0, steps: int = 0) -> None:
    """For nobody who watches."""

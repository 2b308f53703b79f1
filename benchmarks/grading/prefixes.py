"""How much of a workload is there to compute: tokens, and distinct prefixes, as both sides cut it."""

from collections.abc import Iterable
from functools import partial
from itertools import pairwise

from strop.engines.opening import tokenizer
from strop.grader.prepare import from_plain
from strop.trajectory.model import Trajectory


def prefixes(model: str, trajectories: Iterable[Trajectory], length: int) -> int:
    """Distinct prefixes of the last `length` tokens of each: what a pass that repeats nothing computes."""
    known = tokenizer(model)
    bos, encode = known.encode(known.bos_token, special=True), partial(known.encode, special=True)
    rows = sorted(
        row.ids[-length:].tolist() for one in trajectories for row in from_plain(one, encode, bos).rows
    )
    return sum(len(row) for row in rows) - sum(_alike(*pair) for pair in pairwise(rows))


def _alike(one: list[int], other: list[int]) -> int:
    """How many tokens two rows begin with alike."""
    same = [a == b for a, b in zip(one, other, strict=False)]
    return same.index(False) if False in same else len(same)

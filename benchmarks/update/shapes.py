"""The rows of one update, in three shapes: one shared prompt, a tree of turns, nothing shared.

Token ids are drawn at random: what they say changes neither work nor memory.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from strop.seeds import generator
from strop.trajectory.tokens import Row

PROMPT, SAMPLED = 512, 128
TURNS, REPLY, RESULT, FIRST = 4, (24, 64), (32, 112), 256
VARIANTS = (3, 2, 2, 1)
"""How many ways a node of the tree of turns goes on; an attempt takes one of them at random."""
LOW, HIGH = 100, 40000


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """All rows of an update: `prompts` tokens before the first sampled one, `advantages` one a row."""

    rows: tuple[Row, ...]
    prompts: NDArray[np.int64]
    advantages: NDArray[np.float64]

    @property
    def tokens(self) -> int:
        """Tokens of all rows, each counted as often as it stands in one."""
        return sum(len(row.ids) for row in self.rows)

    @property
    def unique(self) -> int:
        """Tokens left where every prefix that rows of one group share is counted once."""
        return len({row.ids[:end].tobytes() for row in self.rows for end in range(1, len(row.ids) + 1)})


Piece = tuple[NDArray[np.int64], bool]
"""Neighbouring tokens of a row, and whether they were sampled."""


def shared_prompt(groups: int, attempts: int) -> Update:
    """Groups of attempts at one prompt, each a single reply."""
    rng = generator(0, "train_step", "shared_prompt")
    rows = []
    for _ in range(groups):
        prompt = _tokens(rng, PROMPT)
        rows += [_row([(prompt, False), (_tokens(rng, SAMPLED), True)]) for _ in range(attempts)]
    return _update(rows, rng)


def unshared(groups: int, attempts: int) -> Update:
    """As many rows of the same length, but each with a prompt of its own."""
    rng = generator(0, "train_step", "unshared")
    rows = [
        _row([(_tokens(rng, PROMPT), False), (_tokens(rng, SAMPLED), True)]) for _ in range(groups * attempts)
    ]
    return _update(rows, rng)


def turns(groups: int, attempts: int) -> Update:
    """Groups of four-turn attempts with tool results between, alike up to where they first differ.

    Two attempts that say the same get the same result, so what they share is a tree, and sampled tokens
    are shared too. Replies and results are of many lengths.
    """
    rng = generator(0, "train_step", "turns")
    rows = []
    for _ in range(groups):
        prompt, known = _tokens(rng, FIRST), dict[tuple[int, ...], list[Piece]]()
        for attempt in range(attempts):
            rows.append(_row([(prompt, False), *_conversation(rng, known, attempt)]))
    return _update(rows, rng)


SHAPES: Mapping[str, Callable[[int, int], Update]] = {
    "shared_prompt": shared_prompt,
    "turns": turns,
    "unshared": unshared,
}


def _conversation(
    rng: np.random.Generator, known: dict[tuple[int, ...], list[Piece]], attempt: int
) -> list[Piece]:
    taken: list[int] = []
    pieces: list[Piece] = []
    for turn in range(TURNS):
        # The last turn is each attempt's own, so that no two rows are the same.
        taken.append(attempt if turn == TURNS - 1 else int(rng.integers(VARIANTS[turn])))
        node = tuple(taken)
        if node not in known:
            reply = _tokens(rng, int(rng.integers(*REPLY)))
            result = _tokens(rng, int(rng.integers(*RESULT)))
            known[node] = [(reply, True), (result, False)] if turn < TURNS - 1 else [(reply, True)]
        pieces += known[node]
    return pieces


def _tokens(rng: np.random.Generator, count: int) -> NDArray[np.int64]:
    return rng.integers(LOW, HIGH, count)


def _row(pieces: Sequence[Piece]) -> Row:
    ids = np.concatenate([tokens for tokens, _ in pieces])
    mask = np.concatenate([np.full(len(tokens), sampled) for tokens, sampled in pieces])
    nothing = np.zeros(len(ids))
    return Row(
        trajectory_id="row",
        ids=ids,
        mask=mask,
        logprobs=nothing,
        turn_of=np.where(mask, 0, -1),
        temperature=1.0,
    )


def _update(rows: Sequence[Row], rng: np.random.Generator) -> Update:
    prompts = np.array([int(np.argmax(row.mask)) for row in rows])
    return Update(rows=tuple(rows), prompts=prompts, advantages=rng.standard_normal(len(rows)))

"""What a trained reward model is shown of a trajectory, and after how many tokens each step is read.

A model of whole conversations is read where a conversation would end: after each step, the prefix up to it. A
model of steps is read at a marker that stands after each step (`<extra_0>`, `ки`), all in one conversation.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from strop.errors import InputError
from strop.grader.plain import Encode, plain_row
from strop.inference.chat import Chat
from strop.trajectory.model import Message, Trajectory

STEP_END = "\u2063step-ends-here\u2063"
"""Where a marker goes while the template writes the conversation; invisible separators, so nobody's text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardRow:
    """`ids` int64 [T]. The step at `places[i]` is read after the first `ends[i]` tokens, 1 to T."""

    ids: NDArray[np.int64]
    ends: tuple[int, ...]
    places: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A trajectory's rows. `messages` is the message of each step; `indices` its number as grades have it,
    and `length` how many such numbers there are."""

    rows: tuple[RewardRow, ...]
    messages: tuple[int, ...]
    indices: tuple[int, ...]
    length: int


def chat_shown(trajectory: Trajectory, chat: Chat, marker: Sequence[int] = ()) -> Shown:
    """By the model's template, up to the last assistant message; tools as the template has them.

    With a `marker` its ids follow each step's text, calls included, before what the template closes a reply
    with. Raises InputError where nobody speaks for the assistant and where a message holds `STEP_END`.
    """
    spoken = [i for i, m in enumerate(trajectory.messages) if m["role"] == "assistant"]
    if not spoken:
        raise InputError("no message of the assistant, so nothing to score")
    rows = [_marked(trajectory, chat, marker, spoken[-1])] if marker else _prefixes(trajectory, chat, spoken)
    steps = tuple(range(len(spoken)))
    return Shown(rows=tuple(rows), messages=tuple(spoken), indices=steps, length=len(spoken))


def plain_shown(
    trajectory: Trajectory,
    encode: Encode,
    bos: Sequence[int],
    *,
    marker: Sequence[int] = (),
    every: bool = False,
) -> Shown:
    """In the plain format of `strop.grader.plain`, `marker` after each graded message. Raises InputError."""
    row = plain_row(trajectory, encode, bos, every=every)
    numbers = np.unique(row.turn_of[row.mask]).tolist()
    spoken = [i for i, m in enumerate(trajectory.messages) if m["role"] == "assistant"]
    ids: list[int] = []
    ends, at = [], 0
    for number in numbers:
        end = int(np.flatnonzero(row.turn_of == number)[-1]) + 1
        ids += [*row.ids[at:end].tolist(), *marker]
        ends.append(len(ids))
        at = end
    whole = RewardRow(ids=np.array(ids, dtype=np.int64), ends=tuple(ends), places=tuple(range(len(numbers))))
    return Shown(
        rows=(whole,),
        messages=tuple(numbers),
        indices=tuple(numbers) if every else tuple(map(spoken.index, numbers)),
        length=len(trajectory.messages) if every else len(spoken),
    )


def merged(prefixes: Sequence[Sequence[int]]) -> list[RewardRow]:
    """Rows that hold all of these conversations: one that begins with the one before goes into its row."""
    rows: list[tuple[Sequence[int], list[int], list[int]]] = []
    for place, ids in enumerate(prefixes):
        if rows and list(ids[: len(rows[-1][0])]) == list(rows[-1][0]):
            _, ends, places = rows.pop()
            rows.append((ids, [*ends, len(ids)], [*places, place]))
        else:
            rows.append((ids, [len(ids)], [place]))
    return [
        RewardRow(ids=np.array(ids, dtype=np.int64), ends=tuple(ends), places=tuple(places))
        for ids, ends, places in rows
    ]


def _prefixes(trajectory: Trajectory, chat: Chat, spoken: Sequence[int]) -> list[RewardRow]:
    def ids(last: int) -> list[int]:
        text = chat.closed_text(trajectory.messages[: last + 1], trajectory.tools)
        return chat.tokenizer.encode(text, special=True)

    return merged([ids(last) for last in spoken])


def _marked(trajectory: Trajectory, chat: Chat, marker: Sequence[int], last: int) -> RewardRow:
    messages, tools = trajectory.messages[: last + 1], trajectory.tools
    shown = [_ending(messages[: i + 1], trajectory, chat) for i in range(len(messages))]
    *steps, rest = chat.closed_text(shown, tools).split(STEP_END)
    if len(steps) != sum(m["role"] == "assistant" for m in messages):
        raise InputError("its template, or its text, leaves no room for a marker after each step")
    ids: list[int] = []
    ends = []
    for text in steps:
        ids += [*chat.tokenizer.encode(text, special=True), *marker]
        ends.append(len(ids))
    ids += chat.tokenizer.encode(rest, special=True)
    return RewardRow(ids=np.array(ids, dtype=np.int64), ends=tuple(ends), places=tuple(range(len(ends))))


def _ending(messages: Sequence[Message], trajectory: Trajectory, chat: Chat) -> Message:
    """The last message; an assistant's as one text, what it called included, and the end marked."""
    message = messages[-1]
    if message["role"] != "assistant":
        return message
    return {"role": "assistant", "content": chat.written(messages, trajectory.tools) + STEP_END}

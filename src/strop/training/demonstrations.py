"""Chat demonstrations to token rows, as the engine would have seen them had it sampled them."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from strop.errors import InputError
from strop.inference.chat import Chat
from strop.trajectory.model import Message, Trajectory, Turn
from strop.trajectory.tokens import Row, rows


def demonstration_rows(
    trajectory_id: str,
    messages: Sequence[Message],
    tools: Sequence[Mapping[str, Any]],
    chat: Chat,
    learn: Collection[int] | None = None,
) -> list[Row]:
    """Rows whose mask covers the assistant messages, each with its end-of-turn token.

    `learn` restricts the mask to these message indices (per-message loss masks). Log-probs are 0:
    nothing sampled them, so the rows are for supervised training only. Raises InputError where no
    assistant message is left to learn from.
    """
    turns = rendered_turns(messages, tools, chat)
    made = rows(trajectory_id, turns)
    if learn is not None:
        made = [
            restricted(row, [i for i, turn in enumerate(turns) if turn.message_index in learn])
            for row in made
        ]
    if not any(row.mask.any() for row in made):
        raise InputError(f"demonstration {trajectory_id}: no assistant message to learn from")
    return made


def rendered_turns(messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], chat: Chat) -> list[Turn]:
    """A turn for each assistant message, tokenised with the model's template; log-probs are 0."""
    turns: list[Turn] = []
    ids: list[int] | None = None
    known = 0
    end = chat.end_ids
    for index, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        prompt = None if ids is None else chat.extend(ids, messages[:index], known, tools)
        prompt = prompt or chat.prompt(messages[:index], tools)
        text = chat.written(messages[: index + 1], tools)
        reply = [*chat.tokenizer.encode(text, special=False), *end]
        ids, known = [*prompt, *reply], index + 1
        turns.append(_turn(prompt, reply, index))
    return turns


def as_turns(trajectory: Trajectory, chat: Chat) -> Trajectory:
    """The trajectory with turns: its own where it has any, else rendered from its messages.

    So plain chat logs can be graded. Their log-probs are unknown (0); graders read ids only.
    """
    if trajectory.turns:
        return trajectory
    return replace(trajectory, turns=tuple(rendered_turns(trajectory.messages, trajectory.tools, chat)))


def _turn(prompt: Sequence[int], reply: Sequence[int], index: int) -> Turn:
    return Turn(
        prompt_ids=tuple(prompt),
        sampled_ids=tuple(reply),
        logprobs=(0.0,) * len(reply),
        finish_reason="stop",
        message_index=index,
    )


def restricted(row: Row, turns: Collection[int]) -> Row:
    """The row with a mask on the tokens of these turns only, by their numbers in the trajectory."""
    return Row(
        trajectory_id=row.trajectory_id,
        ids=row.ids,
        mask=row.mask & np.isin(row.turn_of, list(turns)),
        logprobs=row.logprobs,
        turn_of=row.turn_of,
        temperature=row.temperature,
    )

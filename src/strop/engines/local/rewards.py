"""Steps and trajectories scored by a trained reward model, in batches; what does not fit is unscored."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from strop.engines.local.reward_kind import RewardConfig, writes_chat
from strop.engines.local.reward_model import RewardModel, open_reward_model
from strop.errors import InputError
from strop.grader.grade import UnscoredStep
from strop.grader.reward_rows import RewardRow, Shown, chat_shown, plain_shown
from strop.grader.rewards import Rewarded
from strop.inference.chat import Chat
from strop.trajectory.model import Trajectory

BATCH_TOKENS = 8192
"""Tokens of a batch, padding counted, unless one row alone has more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """A row to read, cut to what fits, and its place among trajectories."""

    trajectory: int
    row: RewardRow


class LocalRewards:
    """Implements `strop.grader.rewards.Rewards` over a transformers model.

    A step is scored exactly as if its conversation were alone: padding, batch and what comes later change
    nothing beyond rounding. `chat`: conversations are written with the model's template.
    """

    def __init__(self, config: RewardConfig) -> None:
        self.config = config
        self.model: RewardModel = open_reward_model(config)
        self.chat = writes_chat(config, self.model.tokenizer)

    def score(self, trajectories: Sequence[Trajectory]) -> list[Rewarded]:
        shown = [self._shown(trajectory) for trajectory in trajectories]
        jobs = [
            _Job(trajectory=number, row=fits)
            for number, one in enumerate(shown)
            if isinstance(one, Shown)
            for row in one.rows
            if (fits := self._fitting(row)) is not None
        ]
        values: list[dict[int, float]] = [{} for _ in trajectories]
        for some in _batches(jobs):
            for job, scores in zip(some, self._read([job.row for job in some]), strict=True):
                values[job.trajectory].update(zip(job.row.places, scores, strict=True))
        return [
            self._rewarded(trajectory, one, found)
            for trajectory, one, found in zip(trajectories, shown, values, strict=True)
        ]

    def _shown(self, trajectory: Trajectory) -> Shown | str:
        """What the model is shown, or why nothing is."""
        tokenizer, marker = self.model.tokenizer, self.model.found.marker
        try:
            if self.chat:
                return chat_shown(trajectory, Chat(tokenizer), marker)
            bos = tokenizer.encode(tokenizer.bos_token, special=True) if tokenizer.bos_token else []
            encode = partial(tokenizer.encode, special=False)
            every = self.config.text == "plain-all"
            return plain_shown(trajectory, encode, bos, marker=marker, every=every)
        except InputError as error:
            return str(error)

    def _fitting(self, row: RewardRow) -> RewardRow | None:
        """The part of a row that can be read; a model that sees ahead reads a row of steps whole or not."""
        fit = [end for end in row.ends if end <= self.model.max_length]
        if self.model.parts.body is None and self.model.found.kind != "sequence":
            return row if len(row.ids) <= self.model.max_length else None
        return (
            replace(row, ids=row.ids[: fit[-1]], ends=tuple(fit), places=row.places[: len(fit)])
            if fit
            else None
        )

    @torch.inference_mode()
    def _read(self, rows: Sequence[RewardRow]) -> list[list[float]]:
        ids = [torch.from_numpy(row.ids).to(self.model.device) for row in rows]
        if self.model.parts.body is None or self.model.parts.head is None:
            return [
                self.model.parts.alone(one, list(row.ends)).double().tolist()
                for one, row in zip(ids, rows, strict=True)
            ]
        states = self._states(ids)
        where = [[self.model.last(one, end) for end in row.ends] for one, row in zip(ids, rows, strict=True)]
        taken = torch.cat([states[i, places] for i, places in enumerate(where)])
        scores = self.model.parts.head(taken).double().cpu().numpy()
        return [part.tolist() for part in np.split(scores, np.cumsum([len(w) for w in where])[:-1])]

    def _states(self, ids: Sequence[Tensor]) -> Tensor:
        """[B, T, d], rows padded at their end and the padding hidden."""
        padded = torch.nn.utils.rnn.pad_sequence(list(ids), batch_first=True)
        seen = torch.zeros_like(padded)
        for number, one in enumerate(ids):
            seen[number, : len(one)] = 1
        output = self.model.parts.body(input_ids=padded, attention_mask=seen, use_cache=False)
        states: Tensor = output.last_hidden_state
        return states

    def _rewarded(self, trajectory: Trajectory, shown: Shown | str, found: dict[int, float]) -> Rewarded:
        if isinstance(shown, str):
            return Rewarded(trajectory_id=trajectory.trajectory_id, reason=shown)
        values: list[float | None] = [None] * shown.length
        lost: list[UnscoredStep] = []
        for place, (index, message) in enumerate(zip(shown.indices, shown.messages, strict=True)):
            value = found.get(place)
            if value is not None and np.isfinite(value):
                values[index] = value
                continue
            lost.append(
                UnscoredStep(index=index, message_index=message, reason=self._why(shown, place, value))
            )
        whole = values[shown.indices[-1]] if self.model.found.kind == "sequence" else None
        return Rewarded(
            trajectory_id=trajectory.trajectory_id, values=tuple(values), unscored=tuple(lost), whole=whole
        )

    def _why(self, shown: Shown, place: int, value: float | None) -> str:
        if value is not None:
            return "the reward model gave a number that is not finite"
        row = next(row for row in shown.rows if place in row.places)
        alone = self.model.parts.body is None and self.model.found.kind != "sequence"
        tokens = len(row.ids) if alone else row.ends[row.places.index(place)]
        return f"{tokens} tokens up to here, the reward model reads {self.model.max_length}"


def _batches(jobs: Sequence[_Job]) -> Iterator[list[_Job]]:
    """Rows of nearly the same length together."""
    some: list[_Job] = []
    for job in sorted(jobs, key=lambda job: len(job.row.ids)):
        if some and (len(some) + 1) * len(job.row.ids) > BATCH_TOKENS:
            yield some
            some = []
        some.append(job)
    if some:
        yield some

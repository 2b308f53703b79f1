"""A two-model engine on numpy alone: log-probs are looked up by token id, so grades are known by hand."""

import numpy as np
import pytest

from strop.engine import Scored
from strop.errors import InputError
from strop.trajectory.model import Trajectory, Turn


class TableEngine:
    """log π(token) = -token / 10 under the policy and -token / 5 under the reference."""

    def __init__(self, scale=None, longest=10**6):
        self.scale = scale or {"policy": -0.1, "reference": -0.2}
        self.longest = longest
        self.calls = []

    def score(self, rows, adapter):
        self.calls.append((adapter, len(rows)))
        if any(len(row.ids) > self.longest for row in rows):
            raise InputError("row is longer than the model's context")
        return [self._scored(row.ids[row.mask], adapter) for row in rows]

    def _scored(self, ids, adapter):
        logprobs = self.scale[adapter] * ids.astype(np.float64)
        return Scored(
            logprobs=logprobs,
            entropy=np.full(len(ids), 0.5),
            self_certainty=np.full(len(ids), 2.0),
            topk_logprob=np.full(len(ids), -7.0),
        )


def turn(prompt, sampled, message_index):
    return Turn(
        prompt_ids=tuple(prompt),
        sampled_ids=tuple(sampled),
        logprobs=tuple(-0.5 for _ in sampled),
        finish_reason="stop",
        message_index=message_index,
    )


def two_steps(name="t", **fields):
    """Message 1 wrote tokens 3 4, message 3 wrote token 6."""
    roles = ("user", "assistant", "tool", "assistant")
    turns = (turn([1, 2], [3, 4], 1), turn([1, 2, 3, 4, 5], [6], 3))
    messages = tuple({"role": role, "content": role} for role in roles)
    return Trajectory(
        trajectory_id=name, scenario_id="s", group_id="g", **({"messages": messages, "turns": turns} | fields)
    )


@pytest.fixture
def table_engine():
    return TableEngine


@pytest.fixture
def make_turn():
    return turn


@pytest.fixture
def make_two_steps():
    return two_steps

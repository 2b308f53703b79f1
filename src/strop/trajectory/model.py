"""The values everything else passes around: turns, trajectories, groups. No behaviour, no I/O."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Message = Mapping[str, Any]
"""One chat message in OpenAI's format: role, content, tool_calls, tool_call_id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One model call, as the engine saw it: token ids in, token ids out.

    `prompt_ids` and `sampled_ids` are vocabulary indices; nothing sampled is ever tokenised again.
    `logprobs` are the sampler's natural-log probabilities of `sampled_ids` under the distribution
    it sampled from (temperature applied), one for each sampled id. `message_index` says which
    message of the trajectory this turn wrote, -1 where it wrote none of them (a sub-agent, a history
    compacted since). `policy_version` is the version that sampled it.
    """

    prompt_ids: tuple[int, ...]
    sampled_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: str
    message_index: int
    policy_version: int = 0
    temperature: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory:
    """One attempt at a scenario.

    `score` is the judge's, in [0, 1], meaningful only inside the group; None until judged.
    `unscored` is the third state: the reason why there is no score. Never both.
    `failure` is the reason why the attempt itself did not end well (agent raised, deadline, ...).
    `truth` is a label in [0, 1] that training never reads; `first_wrong_step` counts assistant
    messages from 0, None where no step is wrong or nothing is known.
    """

    trajectory_id: str
    scenario_id: str
    group_id: str
    messages: tuple[Message, ...]
    tools: tuple[Mapping[str, Any], ...] = ()
    turns: tuple[Turn, ...] = ()
    score: float | None = None
    unscored: str | None = None
    failure: str | None = None
    truth: float | None = None
    first_wrong_step: int | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The trajectories of one scenario that are compared with each other.

    `noise` is the standard error of one of their scores, as repeated judgements show it; None: unknown.
    `asked` is False where scores were given without asking a judge, because there was nothing to compare.
    """

    group_id: str
    scenario_id: str
    trajectories: Sequence[Trajectory]
    noise: float | None = None
    asked: bool = True
    metadata: Mapping[str, Any] = field(default_factory=dict)

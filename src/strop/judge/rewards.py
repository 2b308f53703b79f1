"""The judge as a reward function: one number a completion, as trainers such as TRL ask for.

judge = Judge(Endpoint(base_url, api_key, model))
async def reward(prompts, completions, **_):
    return await rewards(judge, prompts, completions, group_size=8)
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from statistics import fmean

from strop.errors import InputError
from strop.judge.verdict import Verdict
from strop.trajectory.model import Group, Message, Trajectory

TIED_REWARD = 0.5

Said = str | Sequence[Message]
"""A prompt or a completion: plain text, or chat messages."""

JudgesGroups = Callable[[Group], Awaitable[Verdict]]
"""A Judge, or any async callable that gives a verdict on a group."""


async def rewards(
    judge: JudgesGroups, prompts: Sequence[Said], completions: Sequence[Said], group_size: int
) -> list[float]:
    """A number in [0, 1] for every completion, in their order; see `scores` for the arguments.

    A trainer that knows no third state must not learn from a judge's failure: an unscored completion
    gets the mean of its group's scores, so that it lies at the baseline, and a group that is wholly
    unscored gets 0.5 throughout, so that every advantage in it is 0. The judge's ledger counts both,
    the mean of the numbers does not show them.
    """
    found = await scores(judge, prompts, completions, group_size)
    parts = [found[start : start + group_size] for start in range(0, len(found), group_size)]
    return [number for part in parts for number in _filled(part)]


async def scores(
    judge: JudgesGroups, prompts: Sequence[Said], completions: Sequence[Said], group_size: int
) -> list[float | None]:
    """The judge's score of every completion, in their order; None where it gave none.

    `prompts` and `completions` hold one entry a completion, each group's `group_size` together; all
    groups are judged at once. For trainers that leave a None out of the group's baseline. Raises
    InputError as `groups_of` does, and what the judge raises (JudgeStopped, Unreachable); the other
    groups are then given up.
    """
    groups = groups_of(prompts, completions, group_size)
    tasks = [asyncio.ensure_future(_scores(judge, group)) for group in groups]
    try:
        return [score for part in await asyncio.gather(*tasks) for score in part]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def groups_of(prompts: Sequence[Said], completions: Sequence[Said], size: int) -> list[Group]:
    """The groups that `size` completions after one another make, each on one prompt.

    Plain text becomes a user's message, or an assistant's after the prompt. Raises InputError where the
    lengths differ, do not divide by `size`, or a group's prompts are not the same.
    """
    if size < 1:
        raise InputError(f"group_size is {size}; it must be at least 1")
    if len(prompts) != len(completions):
        raise InputError(f"{len(prompts)} prompts but {len(completions)} completions; give one of each")
    if len(completions) % size:
        raise InputError(
            f"{len(completions)} completions do not make groups of {size}; "
            "group_size must be the trainer's number of generations, and a batch hold whole groups"
        )
    starts = range(0, len(completions), size)
    return [
        _group(number, prompts[start : start + size], completions[start : start + size])
        for number, start in enumerate(starts)
    ]


def _group(number: int, prompts: Sequence[Said], completions: Sequence[Said]) -> Group:
    name = f"group-{number}"
    asked = _messages(prompts[0], "user")
    for place, prompt in enumerate(prompts):
        if _messages(prompt, "user") != asked:
            raise InputError(
                f"{name}: completion {place} answers another prompt than completion 0; "
                "group_size must be the trainer's number of generations, unshuffled"
            )
    attempts = [
        Trajectory(
            trajectory_id=f"{name}/{place}",
            scenario_id=name,
            group_id=name,
            messages=(*asked, *_messages(completion, "assistant")),
        )
        for place, completion in enumerate(completions)
    ]
    return Group(group_id=name, scenario_id=name, trajectories=attempts)


def _messages(said: Said, role: str) -> tuple[Message, ...]:
    return ({"role": role, "content": said},) if isinstance(said, str) else tuple(said)


async def _scores(judge: JudgesGroups, group: Group) -> list[float | None]:
    given = (await judge(group)).scores or {}
    return [given.get(attempt.trajectory_id) for attempt in group.trajectories]


def _filled(part: Sequence[float | None]) -> list[float]:
    known = [score for score in part if score is not None]
    baseline = fmean(known) if known else TIED_REWARD
    return [baseline if score is None else score for score in part]

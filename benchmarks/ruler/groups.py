"""The groups that both sides judge: public airline tasks, and attempts of the scripted clerk."""

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from strop.demo.clerk import Habits, demonstrate
from strop.demo.orders import STATUSES, scenario
from strop.seeds import generator
from strop.trajectory.model import Group, Message, Trajectory

ROOT = Path(__file__).parents[2]
SEED = 5
ATTEMPTS = 6
HABITS = Habits(
    right_by_status=dict.fromkeys(STATUSES, 0.6),
    blind=0.25, policy=0.05, silent=0.05, garbled=0.08, misread=0.08, stray=0.03,
)  # fmt: skip
"""Those that the shipped judge was taught on: an agent that is half way."""


def find_tau(missing: list[str]) -> Sequence[Group]:
    """50 airline tasks, 4 attempts each; none, and a word in `missing`, where the data is not there."""
    folder = Path(os.environ.get("STROP_DATA") or ROOT.parent / "shared" / "data")
    try:
        said = (folder / "tau_bench" / "gpt-4o-airline.json").read_text(encoding="utf-8")
    except OSError as error:
        missing.append(f"tau_bench: {error.strerror}: {error.filename}; set STROP_DATA to the data folder")
        return []
    rows = json.loads(said)
    by_task: dict[str, list[Sequence[Message]]] = {}
    for row in sorted(rows, key=lambda row: (row["task_id"], row["trial"])):
        by_task.setdefault(f"airline-{row['task_id']}", []).append(row["traj"])
    return [_group(task, attempts) for task, attempts in by_task.items()]


def desk_groups(count: int, attempts: int = ATTEMPTS) -> list[Group]:
    """Groups of attempts at training scenarios of the order desk, each attempt with its own draws."""
    return [_desk_group(index, attempts) for index in range(count)]


def marked(group: Group) -> Group:
    """The same group with a quality in [0, 1] at the end of each attempt, for a planted judge to read.

    It is drawn from the attempt's own text, so that identical attempts stay identical.
    """
    return replace(group, trajectories=tuple(_marked(t) for t in group.trajectories))


def quality(messages: Sequence[Message]) -> float:
    """Two decimals, from a hash of what the messages say; call ids do not count."""
    said = [
        (m["role"], m.get("content"), [c["function"] for c in m.get("tool_calls") or ()]) for m in messages
    ]
    return int.from_bytes(hashlib.sha256(json.dumps(said).encode()).digest()[:4], "big") % 101 / 100


def _marked(trajectory: Trajectory) -> Trajectory:
    *before, last = trajectory.messages
    content = f"{last.get('content') or ''} quality={quality(trajectory.messages):.2f}"
    return replace(trajectory, messages=(*before, {**last, "content": content}))


def _desk_group(index: int, attempts: int) -> Group:
    case = scenario("train", index)
    made = [
        demonstrate(case, HABITS, generator(SEED, "attempt", index, place)).messages
        for place in range(attempts)
    ]
    return _group(case.scenario_id, made)


def _group(name: str, attempts: Sequence[Sequence[Message]]) -> Group:
    trajectories = tuple(
        Trajectory(trajectory_id=f"{name}/{place}", scenario_id=name, group_id=name, messages=tuple(messages))
        for place, messages in enumerate(attempts)
    )
    return Group(group_id=name, scenario_id=name, trajectories=trajectories)

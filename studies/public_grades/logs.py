"""Public logs of agents as trajectories, with the labels that people or checks gave them.

A step of AgentProcessBench and tau-bench is an assistant message. Who&When's are talks of several agents, and
every message is a step. `truth` is 1 for a run that ended well; `first_wrong_step` counts steps from 0.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from strop.errors import InputError
from strop.trajectory.model import Message, Trajectory
from studies.public_verdicts.sources import data_folder, read_json, read_lines

Use = Literal["select", "predict", "attribute"]
RIGHT, NEITHER, WRONG = 1, 0, -1


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicLog:
    """One set: where it lies under `folder`, how it is read, which uses its labels are good for."""

    name: str
    folder: str
    read: Callable[[Path], list[Trajectory]]
    uses: tuple[Use, ...]
    text: Literal["chat", "plain-all"] = "chat"

    def trajectories(self) -> list[Trajectory]:
        """All of them. Raises InputError where the data are missing."""
        return self.read(data_folder(self.folder))


def agentprocessbench(folder: Path, name: str = "hotpotqa") -> list[Trajectory]:
    """Five runs a question with a human label of the whole and of each assistant message (arXiv 2603.14465).

    Only sets whose messages are there can be read. Labels are by message number; raises InputError where
    they are not of exactly the assistant's messages.
    """
    return [_labelled(name, line) for line in read_lines(folder / f"{name}.jsonl")]


def _labelled(name: str, line: Mapping[str, Any]) -> Trajectory:
    task = f"{name}/{line['query_index']}"
    run = f"{task}/{line['sample_index']}"
    spoken = [i for i, message in enumerate(line["messages"]) if message["role"] == "assistant"]
    labels = {int(place): label for place, label in line["step_labels"].items()}
    if sorted(labels) != spoken:
        raise InputError(f"{run}: labels of messages {sorted(labels)}, but the assistant wrote {spoken}")
    by_step = [labels[place] for place in spoken]
    return Trajectory(
        trajectory_id=run,
        scenario_id=task,
        group_id=task,
        messages=tuple(line["messages"]),
        tools=tuple(line["tools"]),
        truth={RIGHT: 1.0, WRONG: 0.0}.get(line["final_label"]),
        first_wrong_step=by_step.index(WRONG) if WRONG in by_step else None,
        metadata={"step_labels": by_step},
    )


def who_and_when(folder: Path, split: str) -> list[Trajectory]:
    """Failed logs of several agents with the step that decided it and its agent (arXiv 2505.00212)."""
    paths = sorted((folder / "data" / split).glob("*.json"), key=lambda path: int(path.stem))
    if not paths:
        raise InputError(f"{split}: no such data at {folder / 'data'}; set STROP_DATA")
    return [_failed(f"{split}/{path.stem}", read_json(path)) for path in paths]


def _failed(name: str, log: Mapping[str, Any]) -> Trajectory:
    return Trajectory(
        trajectory_id=name,
        scenario_id=name,
        group_id=name,
        messages=tuple(log["history"]),
        truth=0.0,
        first_wrong_step=int(log["mistake_step"]),
        metadata={"mistake_agent": log["mistake_agent"]},
    )


def speaker(message: Message) -> str:
    """Who wrote a message of Who&When: its name, or its role without what it was doing in brackets."""
    return str(message.get("name") or message["role"].split(" (")[0])


def tau_bench(folder: Path) -> list[Trajectory]:
    """Four runs a task of one agent at an airline's desk, with the reward of the final state."""
    return [_rewarded(run) for run in read_json(folder / "gpt-4o-airline.json")]


def _rewarded(run: Mapping[str, Any]) -> Trajectory:
    task = f"airline/{run['task_id']}"
    return Trajectory(
        trajectory_id=f"{task}/{run['trial']}",
        scenario_id=task,
        group_id=task,
        messages=tuple(run["traj"]),
        truth=float(run["reward"]),
    )


LOGS: Sequence[PublicLog] = (
    PublicLog(
        name="AgentProcessBench, HotpotQA",
        folder="agentprocessbench",
        read=agentprocessbench,
        uses=("select", "predict", "attribute"),
    ),
    PublicLog(
        name="Who&When, algorithm-generated",
        folder="who_and_when",
        read=lambda folder: who_and_when(folder, "Algorithm-Generated"),
        uses=("attribute",),
        text="plain-all",
    ),
    PublicLog(
        name="Who&When, hand-crafted",
        folder="who_and_when",
        read=lambda folder: who_and_when(folder, "Hand-Crafted"),
        uses=("attribute",),
        text="plain-all",
    ),
    PublicLog(name="tau-bench, airline", folder="tau_bench", read=tau_bench, uses=("select", "predict")),
)

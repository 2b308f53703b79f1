"""Public logs become trajectories whose labels stand at the steps that people meant."""

import json

import pytest
from studies.public_grades.logs import LOGS, agentprocessbench, speaker, tau_bench, who_and_when
from studies.public_verdicts.sources import data_folder

from strop.errors import InputError
from strop.grader.plain import plain_row
from strop.trajectory import codec


def there(name):
    if not data_folder(name).is_dir():
        pytest.skip(f"no public data {name}; set STROP_DATA")
    return data_folder(name)


def said(role, content="x"):
    return {"role": role, "content": content}


def labelled(**labels):
    messages = [said("system"), said("user"), said("assistant", "a"), said("tool"), said("assistant", "b")]
    return {
        "query_index": 7,
        "sample_index": 2,
        "messages": [*messages, said("tool"), said("assistant", "c")],
        "tools": [],
        "final_label": -1,
        "step_labels": {key.removeprefix("m"): label for key, label in labels.items()},
    }


def write(folder, line):
    (folder / "hotpotqa.jsonl").write_text(json.dumps(line) + "\n")
    return folder


def test_labels_by_message_become_labels_by_step(tmp_path):
    (run,) = agentprocessbench(write(tmp_path, labelled(m2=1, m4=-1, m6=-1)))
    assert (run.trajectory_id, run.scenario_id) == ("hotpotqa/7/2", "hotpotqa/7")
    # Message 4 is the assistant's second one.
    assert (run.truth, run.first_wrong_step, run.metadata["step_labels"]) == (0.0, 1, [1, -1, -1])
    (right,) = agentprocessbench(write(tmp_path, labelled(m2=1, m4=0, m6=1) | {"final_label": 1}))
    assert (right.truth, right.first_wrong_step) == (1.0, None)
    (unsure,) = agentprocessbench(write(tmp_path, labelled(m2=1, m4=0, m6=1) | {"final_label": 0}))
    assert unsure.truth is None


def test_labels_of_other_messages_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"messages \[3, 4, 6\], but the assistant wrote \[2, 4, 6\]"):
        agentprocessbench(write(tmp_path, labelled(m3=1, m4=1, m6=1)))


def test_agentprocessbench_by_hand():
    runs = {run.trajectory_id: run for run in agentprocessbench(there("agentprocessbench"))}
    assert len(runs) == 250
    assert sum(run.truth == 1 for run in runs.values()) == 163
    # Read in the file: labels 2: 1, 4: 1, 6: 1, 8: -1; message 8 is "…is Melbourne.", asked for Adelaide's.
    first = runs["hotpotqa/0/0"]
    assert first.metadata["step_labels"] == [1, 1, 1, -1]
    assert first.first_wrong_step == 3
    step = [m for m in first.messages if m["role"] == "assistant"][3]
    assert step["content"].startswith("The Australian city founded in 1838")
    assert runs["hotpotqa/0/1"].first_wrong_step == 2


@pytest.mark.parametrize(
    ("split", "name", "step", "agent", "begins"),
    [
        ("Algorithm-Generated", "1", 0, "Excel_Expert", "You are given: (1) a task"),
        ("Hand-Crafted", "1", 12, "WebSurfer", "I clicked '"),
    ],
)
def test_who_and_when_by_hand(split, name, step, agent, begins):
    runs = {run.trajectory_id: run for run in who_and_when(there("who_and_when"), split)}
    run = runs[f"{split}/{name}"]
    assert (run.first_wrong_step, run.metadata["mistake_agent"]) == (step, agent)
    message = run.messages[step]
    assert speaker(message) == agent
    assert message["content"].startswith(begins)


def test_steps_of_who_and_when_are_messages_as_strop_counts_them():
    run = who_and_when(there("who_and_when"), "Hand-Crafted")[0]
    row = plain_row(run, lambda text: list(text.encode()), [0], every=True)
    graded = sorted(set(row.turn_of[row.mask].tolist()))
    # The first message is the person's; all others are steps, numbered as in the file.
    assert graded == list(range(1, len(run.messages)))
    where = row.turn_of == run.first_wrong_step
    text = bytes(row.ids[where].tolist()).decode()
    assert text == f"\n[WebSurfer]: {run.messages[12]['content']}"


def test_who_and_when_labels_that_its_speakers_bear_out():
    """Known of the data: 126 and 58 logs; 34 of 126 fail at step 1; nearly all agents spoke at their step."""
    counts = {"Algorithm-Generated": (126, 34, 123), "Hand-Crafted": (58, 1, 55)}
    for split, expected in counts.items():
        runs = who_and_when(there("who_and_when"), split)
        right = [speaker(r.messages[r.first_wrong_step]) == r.metadata["mistake_agent"] for r in runs]
        assert (len(runs), sum(r.first_wrong_step == 1 for r in runs), sum(right)) == expected


def test_who_spoke():
    assert speaker({"role": "Orchestrator (-> WebSurfer)", "content": ""}) == "Orchestrator"
    assert speaker({"role": "user", "name": "Computer_terminal", "content": ""}) == "Computer_terminal"


def test_tau_bench_by_hand():
    runs = tau_bench(there("tau_bench"))
    assert (len(runs), len({r.scenario_id for r in runs}), sum(r.truth == 1 for r in runs)) == (200, 50, 84)
    first = runs[0]
    assert (first.trajectory_id, first.scenario_id) == ("airline/0/0", "airline/0")
    assert first.messages[1]["content"].startswith("Hi! I'm looking to book a flight")
    groups = {}
    for run in runs:
        groups.setdefault(run.scenario_id, []).append(run.truth)
    assert {len(truths) for truths in groups.values()} == {4}
    assert sum(len(set(truths)) == 2 for truths in groups.values()) == 26


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log.name)
def test_every_run_can_be_written_and_read_back(log, tmp_path):
    there(log.folder)
    runs = log.trajectories()
    codec.write(tmp_path / "runs.jsonl", runs)
    assert list(codec.read(tmp_path / "runs.jsonl")) == runs

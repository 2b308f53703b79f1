"""strop grade on a tiny model: ladders, whole models, one tokenizer, kill -9 and go on, constant memory."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from local_model import LETTERS, write_model, write_tokenizer
from strop.app.grading import WORK, GradeJob, grade_file
from strop.cli.main import main
from strop.engine import Against, Contrasted, Scored
from strop.engines.local.weights import LoraShape, adapted, load_base, save_adapter
from strop.errors import InputError
from strop.grader.codec import from_json
from strop.grader.grade import Graded, GradeSettings, grade_prepared
from strop.grader.prepare import Prepared, from_plain
from strop.trajectory.lines import read_objects, write_objects
from strop.trajectory.model import Trajectory

PATIENCE_S = 120.0


@pytest.fixture
def trained(tmp_path: Path, tiny_model: Path) -> Callable[[int], Path]:
    """Makes an adapter folder that is far from the bare model, another one for each seed."""

    def make(seed: int) -> Path:
        model = adapted(load_base(tiny_model, torch.float32, "cpu"), LoraShape(rank=2), None, seed)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if "lora_B" in name:
                    parameter.normal_(std=0.3)
        save_adapter(model, tmp_path / f"adapter-{seed}")
        return tmp_path / f"adapter-{seed}"

    return make


def chats(path: Path, count: int) -> Path:
    """One question, answered in two steps by each attempt."""
    write_objects(path, (chat(number) for number in range(count)))
    return path


def chat(number: int) -> dict[str, Any]:
    words = LETTERS[number % 26 : number % 26 + 9].strip() or "abc"
    said = [("user", "where is it?"), ("assistant", words), ("user", "sure?"), ("assistant", "yes")]
    messages = [{"role": role, "content": content} for role, content in said]
    return {"trajectory_id": f"t{number}", "scenario_id": "s", "messages": messages}


def grades(path: Path) -> list[Graded]:
    return [from_json(line) for line in read_objects(path)]


def job(tmp_path: Path, model: Path, policy: Path | str, **fields: Any) -> GradeJob:
    given = {"file": tmp_path / "chats.jsonl", "out": tmp_path / "grades.jsonl"} | fields
    return GradeJob(policy=str(policy), model=str(model), dtype="float32", **given)


def test_a_ladder_has_a_column_for_each_reference(
    tmp_path: Path, tiny_model: Path, trained: Callable[[int], Path]
) -> None:
    policy, before = trained(1), trained(2)
    chats(tmp_path / "chats.jsonl", 3)
    grade_file(job(tmp_path, tiny_model, policy, references=("base", str(before), str(policy))))
    ladder = grades(tmp_path / "grades.jsonl")
    for name, reference in (("base", ()), (before.name, (str(before),)), (policy.name, (str(policy),))):
        out = tmp_path / f"{name}.jsonl"
        grade_file(job(tmp_path, tiny_model, policy, references=reference, out=out))
        for whole, alone in zip(ladder, grades(out), strict=True):
            for left, right in zip(whole.steps, alone.steps, strict=True):
                ours, wanted = left.readings[name]["all"], right.readings[name]["all"]
                assert ours.ratio.sum == pytest.approx(wanted.ratio.sum, abs=1e-5)
                assert ours.centred is not None
    values = [step.readings[policy.name]["all"] for one in ladder for step in one.steps]
    assert {(v.ratio.sum, v.ratio.min, v.centred.sum if v.centred else None) for v in values} == {(0, 0, 0)}
    assert min(abs(step.grade) for one in ladder for step in one.steps) > 1e-3


def test_whole_models_that_share_a_tokenizer(tmp_path: Path, tiny_model: Path) -> None:
    other = write_model(tmp_path / "other", seed=9)
    chats(tmp_path / "chats.jsonl", 2)
    grade_file(job(tmp_path, tiny_model, other, references=(str(tiny_model),)))
    there = grades(tmp_path / "grades.jsonl")
    grade_file(job(tmp_path, tiny_model, tiny_model, references=(str(other),), out=tmp_path / "back.jsonl"))
    back = grades(tmp_path / "back.jsonl")
    forth = [step.grade for one in there for step in one.steps]
    assert [-step.grade for one in back for step in one.steps] == pytest.approx(forth, abs=1e-5)
    assert min(map(abs, forth)) > 1e-3


def test_another_tokenizer_is_refused_in_one_line(
    tmp_path: Path, tiny_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = write_tokenizer(write_model(tmp_path / "other", seed=9))
    held = Tokenizer.from_file(str(other / "tokenizer.json"))
    text = json.loads(held.to_str())
    text["model"]["vocab"] |= {"a": text["model"]["vocab"]["b"], "b": text["model"]["vocab"]["a"]}
    (other / "tokenizer.json").write_text(json.dumps(text))
    file = chats(tmp_path / "chats.jsonl", 1)
    arguments = ["grade", str(file), "--policy", str(tiny_model), "--reference", str(other)]
    assert main([*arguments, "--out", str(tmp_path / "grades.jsonl")]) == 2
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert "its tokenizer is not that of" in said
    assert not (tmp_path / "grades.jsonl").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--format", "verse"], "'verse' is not one of 'chat'"),
        (["--long", "short"], "'short' is not one of 'slide'"),
        (["--max-length", "1"], "--max-length 1"),
        (["--reference", "base", "--reference", "base"], "the same one twice"),
    ],
)
def test_wrong_input_is_one_line(
    arguments: list[str],
    said: str,
    tmp_path: Path,
    tiny_model: Path,
    trained: Callable[[int], Path],
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = chats(tmp_path / "chats.jsonl", 1)
    policy = ["--policy", str(trained(1)), "--model", str(tiny_model), "--out", str(tmp_path / "g.jsonl")]
    assert main(["grade", str(file), *policy, *arguments]) == 2
    assert said in capsys.readouterr().err


def test_longer_than_the_model_slides_and_says_so(
    tmp_path: Path, tiny_model: Path, trained: Callable[[int], Path]
) -> None:
    chats(tmp_path / "chats.jsonl", 1)
    policy = trained(1)
    grade_file(job(tmp_path, tiny_model, policy, max_length=24))
    (slid,) = grades(tmp_path / "grades.jsonl")
    assert [step.context_lost > 0 for step in slid.steps] == [True, True]
    said = grade_file(job(tmp_path, tiny_model, policy, max_length=24, long="last"))
    (cut,) = grades(tmp_path / "grades.jsonl")
    assert (said["steps"], said["unscored_steps"]) == (1, 1)
    assert [step.index for step in cut.unscored] == [0]
    assert [step.index for step in cut.steps] == [1]


KILLED = """
import os, signal
from strop.app import kept_lines

put, lines = kept_lines.put, []

def put_and_killed(file, line):
    put(file, line)
    lines.append(line)
    if len(lines) == 150:
        os.kill(os.getpid(), signal.SIGKILL)

kept_lines.put = put_and_killed
"""


def begun(tmp_path: Path, model: Path, policy: Path, before: str = "") -> subprocess.Popen[str]:
    """`strop grade` in a process of its own, after the code `before`."""
    code = f"{before}import sys; from strop.cli.main import main; sys.exit(main())"
    arguments = ["grade", str(tmp_path / "chats.jsonl"), "--policy", str(policy), "--model", str(model)]
    arguments += ["--out", str(tmp_path / "grades.jsonl"), "--dtype", "float32", "--json"]
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_killed_it_goes_on_to_the_same_lines(
    tmp_path: Path, tiny_model: Path, trained: Callable[[int], Path]
) -> None:
    policy, out = trained(1), tmp_path / "grades.jsonl"
    chats(tmp_path / "chats.jsonl", 400)
    kept = tmp_path / f"grades.jsonl{WORK}" / "grades.jsonl"
    killed = begun(tmp_path, tiny_model, policy, KILLED)
    err = killed.communicate(timeout=PATIENCE_S)[1]
    assert killed.returncode == -signal.SIGKILL, err
    assert not out.exists()
    with open(kept, "ab") as file:
        file.write(b'{"schema": 1, "traj')
    again = begun(tmp_path, tiny_model, policy)
    said, err = again.communicate(timeout=PATIENCE_S)
    assert again.returncode == 0, err
    result = json.loads(said)
    assert result["resumed_at"] == 150
    assert (result["graded"], result["steps"]) == (400, 800)
    assert not kept.parent.exists()
    lines = grades(out)
    assert [line.trajectory_id for line in lines] == [f"t{i}" for i in range(400)]
    whole = tmp_path / "whole.jsonl"
    grade_file(job(tmp_path, tiny_model, policy, out=whole))
    for one, wanted in zip(lines, grades(whole), strict=True):
        assert one.sum == pytest.approx(wanted.sum, abs=1e-4)


def test_what_other_settings_began_is_not_mixed_in(
    tmp_path: Path, tiny_model: Path, trained: Callable[[int], Path]
) -> None:
    chats(tmp_path / "chats.jsonl", 2)
    policy = trained(1)
    work = tmp_path / f"grades.jsonl{WORK}"
    with pytest.raises(KeyboardInterrupt):
        grade_file(job(tmp_path, tiny_model, policy, progress=stopped_after_one))
    assert len(list(read_objects(work / "grades.jsonl"))) == 1
    with pytest.raises(InputError, match="was begun with another max_length"):
        grade_file(job(tmp_path, tiny_model, policy, max_length=20))
    assert grade_file(job(tmp_path, tiny_model, policy))["resumed_at"] == 1


def stopped_after_one(stage: str, done: int = 0, total: int = 0, step: int = 0, steps: int = 0) -> None:
    if stage == "grading" and done == 1:
        raise KeyboardInterrupt


def test_a_bad_first_batch_leaves_nothing_behind(
    tmp_path: Path, tiny_model: Path, trained: Callable[[int], Path]
) -> None:
    chats(tmp_path / "chats.jsonl", 2)
    with open(tmp_path / "chats.jsonl", "a") as file:
        file.write("nonsense\n")
    first = job(tmp_path, tiny_model, trained(1))
    with pytest.raises(InputError, match=r"chats\.jsonl:3"):
        grade_file(first)
    # Nothing had been graded, so nothing is kept.
    assert not (tmp_path / f"grades.jsonl{WORK}").exists()


class Counted:
    """Says 0 of all, and counts what it was given at once."""

    references = ("self",)

    def __init__(self) -> None:
        self.rows = 0
        self.most = 0

    def read(self, rows: Any) -> Any:
        self.rows += len(rows)
        self.most = max(self.most, len(rows))
        zeros = [np.zeros(int(row.mask.sum())) for row in rows]
        return [
            Contrasted(
                policy=Scored(logprobs=z, entropy=z, self_certainty=z, topk_logprob=z),
                references=(Against(logprobs=z, kl=z),),
            )
            for z in zeros
        ]


def test_a_stream_is_read_a_batch_ahead_and_no_more() -> None:
    """Ten thousand trajectories are made one by one; one more than a batch beyond the grades is an error."""
    made = 0
    taken = 0

    def source() -> Any:
        nonlocal made
        for number in range(10_000):
            made += 1
            assert made - taken <= 65, "read ahead of what was graded"
            fields = chat(number)
            trajectory = Trajectory(
                trajectory_id=fields["trajectory_id"],
                scenario_id="s",
                group_id="s",
                messages=tuple(fields["messages"]),
            )
            yield prepared(trajectory)

    def prepared(trajectory: Trajectory) -> Prepared:
        return from_plain(trajectory, lambda text: [ord(letter) for letter in text], [1])

    reader = Counted()
    for graded in grade_prepared(source(), reader, GradeSettings(batch=64)):
        taken += 1
        assert graded.sum == 0.0
    assert (taken, reader.rows) == (10_000, 10_000)
    assert reader.most <= 64


def test_a_batch_holds_few_tokens_however_long_the_trajectories_are() -> None:
    trajectory = Trajectory(
        trajectory_id="t",
        scenario_id="s",
        group_id="s",
        messages=({"role": "assistant", "content": "x" * 900},),
    )
    reader = Counted()
    coming = (from_plain(trajectory, lambda text: list(text.encode()), [1]) for _ in range(12))
    assert len(list(grade_prepared(coming, reader, GradeSettings(batch_tokens=3000)))) == 12
    assert reader.most == 3

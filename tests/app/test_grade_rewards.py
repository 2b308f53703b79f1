"""strop grade --reward-model: a column beside the grades, read by select, predict and attribute."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from local_model import write_model
from reward_twin import at_ends, built, chat, saved
from strop.app.grading import WORK, GradeJob, grade_file
from strop.app.rewarding import RewardAsked
from strop.cli.main import main
from strop.engines.local.rewards import LocalRewards
from strop.trajectory import codec
from strop.trajectory.lines import read_objects

pytestmark = pytest.mark.usefixtures("one_thread")
WORDS = ["in the hall", "up", "far, far away", "over there, sure", "no", "he said so"]


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Three scenarios of two attempts, of two or three steps; the second one fails at its second step."""
    made = []
    for number in range(6):
        said = [("user", f"case {'abc'[number // 2]}"), ("assistant", WORDS[number]), ("user", "sure?")]
        said += [("assistant", "yes"), ("user", "well"), ("assistant", WORDS[number][::-1])]
        one = chat(said[: 4 if number % 3 else 6], name=f"t{number}")
        made.append({**codec.to_dict(one), "scenario_id": f"s{number // 2}", "truth": 1.0 - number % 2})
        made[-1] |= {"first_wrong_step": 1} if number % 2 else {}
    (tmp_path / "runs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in made))
    return tmp_path / "runs.jsonl"


@pytest.fixture
def reward(tmp_path: Path) -> tuple[Any, str]:
    model = built("LlamaForSequenceClassification", "LlamaConfig", num_labels=1)
    return model, saved(model, tmp_path / "rm")


def job(runs: Path, tiny_model: Path, **fields: Any) -> GradeJob:
    other = runs.parent / "other"
    if not other.exists():
        write_model(other, seed=4)
    given = {"file": runs, "out": runs.with_name("grades.jsonl"), "dtype": "float32"} | fields
    return GradeJob(policy=str(other), references=(str(tiny_model),), **given)


def test_its_scores_stand_in_the_grades_file_under_its_name(
    runs: Path, tiny_model: Path, reward: tuple[Any, str]
) -> None:
    model, folder = reward
    plain = grade_file(job(runs, tiny_model))
    without = list(read_objects(runs.with_name("grades.jsonl")))
    said = grade_file(job(runs, tiny_model, rewards=(RewardAsked(model=folder),)))
    lines = list(read_objects(runs.with_name("grades.jsonl")))
    for line, bare, trajectory in zip(lines, without, codec.read(runs), strict=True):
        expected = at_ends(model, folder, trajectory)[:, 0].tolist()
        assert line.pop("step_scores") == {"rm": pytest.approx(expected, abs=1e-5)}
        assert line.pop("scores") == {"rm": pytest.approx(expected[-1], abs=1e-5)}
        assert line == bare
    assert said["rewards"] == {
        "rm": {"kind": "sequence", "text": "chat", "runs": 6, "steps": 14, "unscored_steps": 0, "reasons": {}}
    }
    assert "rewards" not in plain


def test_what_does_not_fit_is_null_with_the_reason(
    runs: Path, tiny_model: Path, reward: tuple[Any, str]
) -> None:
    said = grade_file(job(runs, tiny_model, rewards=(RewardAsked(model=reward[1]),), max_length=90))
    first, *_ = read_objects(runs.with_name("grades.jsonl"))
    assert [value is None for value in first["step_scores"]["rm"]] == [False, False, True]
    assert "scores" not in first
    (lost,) = first["unscored_by"]["rm"]
    assert (lost["index"], lost["message_index"]) == (2, 5)
    assert "the reward model reads 90" in lost["reason"]
    assert said["rewards"]["rm"]["unscored_steps"] == 2


def test_a_stopped_command_goes_on_without_scoring_twice(
    runs: Path, tiny_model: Path, reward: tuple[Any, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The same batches before and after, for the rounding of sums depends on them.
    monkeypatch.setattr("strop.app.rewarding.TOGETHER", 2)
    asked = job(runs, tiny_model, rewards=(RewardAsked(model=reward[1]),))
    grade_file(asked)
    whole = asked.out.read_bytes()
    asked.out.unlink()
    scored: list[str] = []
    score = LocalRewards.score

    def dying(self: LocalRewards, some: Any) -> Any:
        scored.extend(one.trajectory_id for one in some)
        if len(scored) == 4:
            raise KeyboardInterrupt
        return score(self, some)

    monkeypatch.setattr(LocalRewards, "score", dying)
    with pytest.raises(KeyboardInterrupt):
        grade_file(asked)
    assert not asked.out.exists()
    grade_file(asked)
    assert scored == ["t0", "t1", "t2", "t3", "t2", "t3", "t4", "t5"]
    assert asked.out.read_bytes() == whole
    assert not asked.out.with_name(f"{asked.out.name}{WORK}").exists()


def test_select_predict_and_attribute_show_it(
    runs: Path, tiny_model: Path, reward: tuple[Any, str], capsys: pytest.CaptureFixture[str]
) -> None:
    out = runs.with_name("grades.jsonl")
    models = ["--policy", str(write_model(runs.parent / "other", seed=4)), "--reference", str(tiny_model)]
    asked = ["grade", str(runs), *models, "--reward-model", reward[1], "--out", str(out), "--json"]
    assert main(asked) == 0
    capsys.readouterr()
    for verb in ("select", "predict", "attribute"):
        assert main([verb, str(out), "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert "rm" in found["nulls"]
        assert found["runs"] == 6


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--reward-kind", "steps"], "read as sequence, not steps"),
        (["--reward-model", "RM"], "the same one twice"),
        (["--reward-model", "nowhere/at/all"], "no such model folder"),
    ],
)
def test_a_reward_model_that_cannot_be_read_is_refused_before_anything_is_graded(
    runs: Path,
    tiny_model: Path,
    reward: tuple[Any, str],
    arguments: list[str],
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    named = [reward[1] if word == "RM" else word for word in arguments]
    models = ["--policy", str(tiny_model), "--reference", str(tiny_model), "--reward-model", reward[1]]
    out = runs.with_name("grades.jsonl")
    assert main(["grade", str(runs), *models, *named, "--out", str(out)]) == 2
    assert said in capsys.readouterr().err
    assert not list(runs.parent.glob("grades*"))


def test_a_model_of_steps_has_no_score_of_the_whole(runs: Path, tiny_model: Path) -> None:
    torch.manual_seed(0)
    folder = saved(
        built("LlamaForTokenClassification", "LlamaConfig", num_labels=2), runs.parent / "prm", extra=True
    )
    grade_file(job(runs, tiny_model, rewards=(RewardAsked(model=folder),)))
    lines = list(read_objects(runs.with_name("grades.jsonl")))
    assert [len(line["step_scores"]["prm"]) for line in lines] == [3, 2, 2, 3, 2, 2]
    assert all("scores" not in line for line in lines)

"""`strop warmstart`: from a file of conversations to an adapter that a run file can name."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toy_project import LetterJudge, write_project

from strop import app
from strop.cli.main import main
from strop.config import load, load_warmstart
from strop.errors import ConfigError
from strop.trajectory.tokens import Row

Ids = list[int]


def line(place: int, answer: str | None = None, **fields: Any) -> str:
    """A scenario of its own: its name is asked for and answered with a's."""
    word = "".join("abcdefghij"[int(digit)] for digit in f"{place:03d}")
    messages = [{"role": "user", "content": word}, {"role": "assistant", "content": answer or "a" * 6}]
    return json.dumps({"messages": messages, **fields})


@pytest.fixture
def demos(tmp_path: Path) -> Path:
    """24 that can be learned, one that is too long, one that failed, one where nobody answers."""
    lines = [line(place) for place in range(24)]
    lines += [line(30, answer="b" * 300), line(31, failure="deadline")]
    lines += [json.dumps({"messages": [{"role": "user", "content": "x"}]})]
    file = tmp_path / "demos.jsonl"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


@pytest.fixture
def arguments(demos: Path, tiny_model: Path, tmp_path: Path) -> list[str]:
    return [
        "warmstart", str(demos), "--out", str(tmp_path / "warm"), "--model", str(tiny_model),
        "--epochs", "2", "--learning-rate", "0.005", "--set", "warmstart.batch=6", "--set", "lora.rank=4",
        "--set", "model.max_length=256", "--set", "model.dtype=float32", "--set", "model.device=cpu",
    ]  # fmt: skip


def printed(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    return json.loads(out)  # type: ignore[no-any-return]


def test_an_adapter_a_record_and_one_object(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, "--json"]) == 0
    result = printed(capsys)
    assert result["demonstrations"] == {
        "all": 27, "learned": 22, "heldout": 2, "too_long": 1, "nothing_to_learn": 1, "failed": 1,
    }  # fmt: skip
    assert result["learned_tokens"] == 22 * 7
    assert result["heldout_loss"]["estimate"] < result["heldout_loss_before"]["estimate"] / 2
    assert result["heldout_loss"]["n"] == 2 * 7
    assert (result["improved"], result["updates"], result["epochs"]) == (True, 8, 2.0)
    assert sorted(path.name for path in (tmp_path / "warm").iterdir()) == [
        "adapter_config.json", "adapter_model.safetensors", "warmstart.json",
    ]  # fmt: skip
    record = json.loads((tmp_path / "warm" / "warmstart.json").read_text())
    assert [each["updates"] for each in record["measurements"]] == [0, 4, 8]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["demos.jsonl", "warm"]


def test_t25_a_run_starts_from_it_at_once_and_it_is_the_reference(
    arguments: list[str], tmp_path: Path, tiny_model: Path, judge: LetterJudge
) -> None:
    """Before its first step a run's policy is its reference, and neither is the bare model."""
    from strop.app import building

    assert main(arguments) == 0
    run_toml = write_project(tmp_path / "project", tiny_model, judge.url)
    ids: Ids = [1, 4, 5, 6, 2]
    row = Row(
        trajectory_id="t",
        ids=np.array(ids),
        mask=np.array([0, 1, 1, 1, 1], dtype=np.bool_),
        logprobs=np.array([0.0, -1, -1, -1, -1]),
        turn_of=np.array([-1, 0, 0, 0, 0]),
    )
    found = {}
    for name, override in (("warm", [f"model.adapter={tmp_path / 'warm'}"]), ("bare", [])):
        engine = building.engine(load(run_toml, override))
        try:
            policy, reference = (engine.logprobs([row], a)[0] for a in ("policy", "reference"))
        finally:
            engine.close()
        assert policy.tolist() == reference.tolist()
        found[name] = policy
    assert np.abs(found["warm"] - found["bare"]).max() > 0.1
    summary = app.train(load(run_toml, [f"model.adapter={tmp_path / 'warm'}"]))
    assert summary["truth_before"]["estimate"] == 1.0


def test_stopped_and_resumed_it_leaves_the_same_adapter(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from strop.store.run import Run

    assert main(arguments) == 0
    whole = {path.name: path.read_bytes() for path in (tmp_path / "warm").glob("adapter_*")}
    arguments[arguments.index("--out") + 1] = str(tmp_path / "again")
    real, left = Run.append_step, [1]

    def stopped(self: Run, line: Any) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        real(self, line)

    with monkeypatch.context() as patch:
        patch.setattr(Run, "append_step", stopped)
        assert main(arguments) == 130
    assert not (tmp_path / "again").exists()
    capsys.readouterr()
    assert main(arguments) == 2
    assert "a warm start was stopped here; --resume goes on" in capsys.readouterr().err
    assert main([*arguments, "--resume", "--seed", "1"]) == 2
    assert "begun with other settings" in capsys.readouterr().err
    assert main([*arguments, "--resume"]) == 0
    assert whole == {path.name: path.read_bytes() for path in (tmp_path / "again").glob("adapter_*")}
    assert not (tmp_path / "again.work").exists()


def test_a_loss_that_never_falls_is_exit_code_1(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Held out is what is never said in the demonstrations."""
    other = tmp_path / "other.jsonl"
    other.write_text("\n".join(line(100 + place, answer="zzzzzz") for place in range(4)) + "\n")
    assert main([*arguments, "--heldout", str(other), "--epochs", "9", "--json"]) == 1
    result = printed(capsys)
    assert result["improved"] is False
    assert result["ended"] == "early"
    assert (tmp_path / "warm").is_dir()


def test_it_goes_on_from_another_adapter(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, "--json"]) == 0
    first = printed(capsys)
    arguments[arguments.index("--out") + 1] = str(tmp_path / "more")
    assert main([*arguments, "--start", str(tmp_path / "warm"), "--json"]) == 0
    assert printed(capsys)["heldout_loss_before"]["estimate"] == pytest.approx(
        first["heldout_loss"]["estimate"], rel=1e-6
    )


@pytest.mark.parametrize(
    ("text", "more", "problem"),
    [
        ("", (), "nothing to learn from: the file holds no conversation"),
        (line(1, answer="b" * 300), (), "nothing to learn from: 1 too long"),
        ("{}", (), "demos.jsonl:1: no messages"),
        (line(1), ("--epochs", "0"), "--set warmstart.epochs: 0 is not allowed"),
        (line(1), ("--set", "warmstart.epoch=1"), "epochs"),
        (line(1), ("--start", "nowhere"), "nowhere: no adapter here"),
        (line(1), ("--heldout", "HERE"), "is also learned from; held-out scenarios must be others"),
    ],
)
def test_wrong_input_is_one_line(
    arguments: list[str],
    demos: Path,
    capsys: pytest.CaptureFixture[str],
    text: str,
    more: tuple[str, ...],
    problem: str,
) -> None:
    demos.write_text(text)
    assert main([*arguments, *(str(demos) if word == "HERE" else word for word in more)]) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("strop: ")
    assert problem in last


def test_a_folder_that_is_there_is_refused(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "warm").mkdir()
    assert main(arguments) == 2
    assert "is there already" in capsys.readouterr().err


def test_a_run_file_gives_model_lora_and_warm_start(tmp_path: Path, tiny_model: Path) -> None:
    run_toml = write_project(tmp_path, tiny_model, "http://unused")
    run_toml.write_text(run_toml.read_text() + '\n[warmstart]\nlearn = "last"\nheldout = "out.jsonl"\n')
    run_toml.write_text(run_toml.read_text().replace("[lora]", 'adapter = "warm"\n[lora]'))
    found = load_warmstart(run_toml, ["warmstart.epochs=7"])
    assert (found.model.name, found.model.adapter, found.lora.rank) == (str(tiny_model), None, 4)
    assert (found.warmstart.learn, found.warmstart.epochs) == ("last", 7)
    assert found.warmstart.heldout == tmp_path / "out.jsonl"
    alone = tmp_path / "alone.toml"
    alone.write_text("[warmstart]\nepochs = 2\n")
    assert load_warmstart(alone).warmstart.epochs == 2
    assert load_warmstart(None).warmstart.heldout == 0.1
    with pytest.raises(ConfigError, match="training"):
        load_warmstart(None, ["training.steps=3"])

"""Verbs against the real application on a tiny model: what is printed, and the exit codes of mistakes."""

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openai
import pytest
from toy_project import LetterJudge, write_project

from strop import app
from strop.cli.main import main

Err = pytest.CaptureFixture[str]


def one_line(capsys: Err, *parts: str) -> None:
    """What was said on standard error ends with one line of ours that holds all these parts."""
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("strop: ")]
    assert len(said) == 1
    for part in parts:
        assert part in said[0]


def two_attempts(path: Path) -> Path:
    lines = [
        {
            "trajectory_id": f"t{i}",
            "scenario_id": "s",
            "group_id": "g",
            "messages": [{"role": "user", "content": "go"}, {"role": "assistant", "content": said}],
        }
        for i, said in enumerate(("aaaa", "zzzz"))
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def judge_toml(path: Path, url: str) -> Path:
    path.write_text(f'base_url = "{url}"\nmodel = "letters"\napi_key_env = "TOY_JUDGE_KEY"\n')
    return path


@pytest.fixture
def adapter(tmp_path: Path, tiny_model: Path) -> Path:
    """An untrained adapter of the tiny model."""
    from strop.engines.local.engine import LocalConfig, LocalEngine

    engine = LocalEngine(LocalConfig(model=str(tiny_model), dtype="float32", device="cpu", max_length=256))
    engine.save(tmp_path)
    engine.close()
    return tmp_path / "adapter"


def test_train_names_an_unknown_key(tmp_path: Path, tiny_model: Path, capsys: Err) -> None:
    run_toml = write_project(tmp_path, tiny_model, "http://127.0.0.1:9/v1")
    assert main(["train", str(run_toml), "--set", "training.speed=9"]) == 2
    one_line(capsys, "training", "speed")
    run_toml.write_text(run_toml.read_text() + "hedout = 3\n")
    assert main(["train", str(run_toml)]) == 2
    one_line(capsys, "run.toml", "hedout")
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ('model.name="./nowhere"', "no such model folder"),
        ('rollout.agent="nobody.py:run"', "no such file"),
        ('rollout.agent="agent.py:walk"', "has no function walk"),
        ('rollout.scenarios="none.jsonl"', "none.jsonl"),
        ('rollout.scenarios="demo:order_desk"', "belong together"),
        ("evaluation.heldout=9", "heldout is 9, but there are 8 scenarios"),
        ("evaluation.heldout=8", "0 scenarios are left to train on"),
        ("rollout.groups_per_step=7", "6 scenarios are left to train on"),
        ('evaluation.heldout="scenarios.jsonl"', "also trained on"),
        ('judge.rubric="none.md"', "none.md"),
        ('model.adapter="none"', "none"),
    ],
)
def test_train_refuses_what_cannot_work_and_leaves_nothing(
    tmp_path: Path, tiny_model: Path, capsys: Err, change: str, said: str
) -> None:
    run_toml = write_project(tmp_path, tiny_model, "http://127.0.0.1:9/v1")
    assert main(["train", str(run_toml), "--set", change]) == 2
    one_line(capsys, said)
    assert not (tmp_path / "runs").exists()


def test_resume_without_a_run_says_so(tmp_path: Path, tiny_model: Path, capsys: Err) -> None:
    assert main(["train", str(write_project(tmp_path, tiny_model, "http://127.0.0.1:9/v1")), "--resume"]) == 2
    one_line(capsys, "no run there")


def test_judge_scores_a_file(tmp_path: Path, judge: LetterJudge, capsys: Err) -> None:
    settings = judge_toml(tmp_path / "judge.toml", judge.url)
    out = tmp_path / "scores.jsonl"
    arguments = [
        "judge",
        str(two_attempts(tmp_path / "a.jsonl")),
        "--judge",
        str(settings),
        "--out",
        str(out),
    ]
    assert main([*arguments, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    expected = {"groups": 1, "scored": 1, "failures": {}, "calls": 2, "tokens_in": 14, "tokens_out": 6}
    assert {name: result[name] for name in expected} == expected
    assert result["out"] == str(out)
    (line,) = map(json.loads, out.read_text().splitlines())
    assert line["scores"]["t0"] > line["scores"]["t1"] == 0.0


def test_judge_with_a_wrong_key_is_3(
    tmp_path: Path, judge: LetterJudge, capsys: Err, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOY_JUDGE_KEY", "wrong")
    settings = judge_toml(tmp_path / "judge.toml", judge.url)
    out = tmp_path / "scores.jsonl"
    out.write_text("earlier work\n")
    file = two_attempts(tmp_path / "a.jsonl")
    assert main(["judge", str(file), "--judge", str(settings), "--out", str(out)]) == 3
    one_line(capsys, "the key was refused")
    assert out.read_text() == "earlier work\n"


def test_judge_that_nobody_answers_is_3_and_keeps_the_reasons(
    tmp_path: Path, judge: LetterJudge, capsys: Err
) -> None:
    judge.good = 0
    settings = judge_toml(tmp_path / "judge.toml", judge.url)
    out = tmp_path / "scores.jsonl"
    file = two_attempts(tmp_path / "a.jsonl")
    assert main(["judge", str(file), "--judge", str(settings), "--out", str(out)]) == 3
    one_line(capsys, "no verdict for any of 1 groups", "down")
    assert json.loads(out.read_text())["failure"] == "transport"


def test_judge_without_a_key_is_2(
    tmp_path: Path, judge: LetterJudge, capsys: Err, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TOY_JUDGE_KEY")
    settings = judge_toml(tmp_path / "judge.toml", judge.url)
    assert main(["judge", str(two_attempts(tmp_path / "a.jsonl")), "--judge", str(settings)]) == 2
    one_line(capsys, "TOY_JUDGE_KEY")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"messages": [{"role": "user", "content": "x"}]}\n{"messages": \n', "a.jsonl:2: not JSON"),
        ('{"messages": [{"role": "user", "content": "x"}]}\n[1]\n', "a.jsonl:2"),
        ('{"messages": []}', "a.jsonl:1"),
        ('{"score": 1}\n', "a.jsonl:1"),
        ("", "no trajectory"),
    ],
)
def test_judge_names_the_bad_line(
    tmp_path: Path, judge: LetterJudge, capsys: Err, text: str, said: str
) -> None:
    file, out = tmp_path / "a.jsonl", tmp_path / "scores.jsonl"
    file.write_text(text)
    settings = judge_toml(tmp_path / "judge.toml", judge.url)
    assert main(["judge", str(file), "--judge", str(settings), "--out", str(out)]) == 2
    one_line(capsys, said)
    assert not out.exists()
    assert judge.asked == 0


def test_grade_plain_chat_with_an_untrained_policy_is_exactly_0(
    tmp_path: Path, tiny_model: Path, adapter: Path, capsys: Err
) -> None:
    out = tmp_path / "grades.jsonl"
    file = two_attempts(tmp_path / "a.jsonl")
    arguments = ["grade", str(file), "--policy", str(adapter), "--model", str(tiny_model), "--out", str(out)]
    assert main([*arguments, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["graded"], said["ungraded"], said["tokens"], said["out"]) == (2, 0, 10, str(out))
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line["trajectory_id"] for line in lines] == ["t0", "t1"]
    assert [step["grade"] for line in lines for step in line["steps"]] == [0.0, 0.0]
    assert [step["n_tokens"] for line in lines for step in line["steps"]] == [5, 5]


def test_grade_names_the_bad_line_and_writes_nothing(
    tmp_path: Path, tiny_model: Path, adapter: Path, capsys: Err
) -> None:
    file, out = two_attempts(tmp_path / "a.jsonl"), tmp_path / "grades.jsonl"
    file.write_text(file.read_text() + "nonsense\n")
    arguments = ["grade", str(file), "--policy", str(adapter), "--model", str(tiny_model), "--out", str(out)]
    assert main(arguments) == 2
    one_line(capsys, "a.jsonl:3: not JSON")
    assert not out.exists()


def test_grade_without_model_or_adapter_is_2(
    tmp_path: Path, tiny_model: Path, adapter: Path, capsys: Err
) -> None:
    file = two_attempts(tmp_path / "a.jsonl")
    nowhere = str(tmp_path / "nowhere")
    assert main(["grade", str(file), "--policy", nowhere, "--model", str(tiny_model)]) == 2
    one_line(capsys, nowhere)
    assert main(["grade", str(file), "--policy", str(adapter), "--model", nowhere]) == 2
    one_line(capsys, "no such model folder")


class Enough(Exception):
    """Ends a server that would serve for ever."""


def served(model: Path, then: Callable[[str], Any], **options: Any) -> None:
    """Serve the tiny model, and call `then` with its address while it does."""

    def ready(base_url: str) -> None:
        then(base_url)
        raise Enough

    settings = {"adapters": {}, "host": "127.0.0.1", "port": 0, "api_key": None, **options}
    with pytest.raises(Enough):
        app.serve(model=str(model), ready=ready, dtype="float32", device="cpu", **settings)


def ask(base_url: str, key: str, model: str = "policy") -> Any:
    with openai.OpenAI(base_url=base_url, api_key=key, max_retries=0) as client:
        return client.chat.completions.create(
            model=model, messages=[{"role": "user", "content": "abc"}], max_tokens=4, seed=1
        )


def test_serve_asks_for_no_key_where_there_is_none(tiny_model: Path, adapter: Path) -> None:
    def then(base_url: str) -> None:
        assert ask(base_url, "anything").usage.completion_tokens >= 1
        # An untrained adapter is the bare model.
        bare, adapted = (ask(base_url, "x", name).choices[0].message.content for name in ("policy", "mine"))
        assert bare == adapted

    served(tiny_model, then, adapters={"mine": adapter})


def test_serve_asks_for_its_key(tiny_model: Path) -> None:
    def then(base_url: str) -> None:
        assert ask(base_url, "secret").choices
        with pytest.raises(openai.AuthenticationError):
            ask(base_url, "guess")
        with pytest.raises(openai.NotFoundError):
            ask(base_url, "secret", "gpt-9")

    served(tiny_model, then, api_key="secret")


def test_serve_at_a_port_in_use_is_2(tiny_model: Path, capsys: Err) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["serve", "--model", str(tiny_model), "--port", str(port)]) == 2
    one_line(capsys, f"port {port}")


def test_serve_a_model_that_is_not_there_is_2(tmp_path: Path, capsys: Err) -> None:
    assert main(["serve", "--model", str(tmp_path / "nowhere"), "--port", "0"]) == 2
    one_line(capsys, "no such model folder")


def test_the_starter_project_trains(
    tmp_path: Path, tiny_model: Path, judge: LetterJudge, capsys: Err
) -> None:
    assert main(["init", str(tmp_path / "mine"), "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    changes = {
        "model.name": json.dumps(str(tiny_model)),
        "model.max_length": 400,
        "rollout.max_tokens": 8,
        "judge.base_url": json.dumps(judge.url),
        "judge.model": '"letters"',
        "judge.api_key_env": '"TOY_JUDGE_KEY"',
        "training.steps": 1,
        "evaluation.judged_groups": 1,
    }
    settings = [part for key, value in changes.items() for part in ("--set", f"{key}={value}")]
    assert made["next"].startswith("strop train ")
    assert main([*made["next"].split()[1:], *settings, "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["steps"] == 1
    assert summary["trajectories"]["all"] == 16
    assert summary["unscored"] == 0
    assert Path(summary["run"]) == tmp_path / "mine" / "runs" / "run"
    assert main(["report", summary["run"], "--json"]) == 0
    assert Path(json.loads(capsys.readouterr().out)["report"]).is_file()

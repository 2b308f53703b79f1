"""The process boundary: exit codes, where output goes, and that a mistake is one line."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from strop import errors
from strop.cli.main import main


def raising(error: BaseException) -> Callable[..., Any]:
    def function(*_: Any, **__: Any) -> Any:
        raise error

    return function


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.InputError("a.jsonl: line 3: not JSON"), 2),
        (errors.ModelError("no such model"), 2),
        (errors.PublishError("probe"), 2),
        (errors.Unreachable("judge: key refused"), 3),
        (errors.JudgeStopped("5 failures in a row"), 3),
    ],
)
def test_known_error_is_one_line_and_its_exit_code(
    app: SimpleNamespace, capsys: pytest.CaptureFixture[str], error: errors.StropError, code: int
) -> None:
    app.report = raising(error)
    assert main(["report", "runs/a"]) == code
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"strop: {error}\n")


def test_error_text_of_several_lines_is_printed_as_one(
    app: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    app.report = raising(errors.InputError("first\n  second"))
    assert main(["report", "runs/a"]) == 2
    assert capsys.readouterr().err == "strop: first second\n"


def test_interrupt_is_130(app: SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    app.report = raising(KeyboardInterrupt())
    assert main(["report", "runs/a"]) == 130
    assert capsys.readouterr().err == "strop: interrupted; what was finished is kept\n"


def test_bug_is_not_hidden(app: SimpleNamespace) -> None:
    app.report = raising(ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        main(["report", "runs/a"])


def test_unknown_verb_and_flag(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sharpen"]) == 2
    assert "sharpen" in capsys.readouterr().err
    assert main(["report", "runs/a", "--no-such-flag"]) == 2
    assert "--no-such-flag" in capsys.readouterr().err


@pytest.mark.parametrize("verb", [[], ["guard"]])
def test_help_cuts_no_verb_short_at_80_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, verb: list[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main([*verb, "--help"]) == 0
    _, _, verbs = capsys.readouterr().out.partition("Commands:\n")
    assert len(verbs.splitlines()) >= 2
    assert [line for line in verbs.splitlines() if not line.endswith(".") or line.endswith("...")] == []


def test_demo(app: SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--seed", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"steps": 12}
    options = app.calls[0][1]["positional"][0]
    assert (options.seed, options.run, options.judge, options.resume) == (2, Path("runs/demo-2"), None, False)


def test_train(app: SimpleNamespace, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text('[rollout]\nscenarios = "s.jsonl"\nagent = "agent.py:run"\n')
    assert main(["train", str(file), "--set", "training.steps=3", "--resume", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"steps": 3}
    name, asked = app.calls[0]
    assert (name, asked["resume"]) == ("train", True)
    assert asked["positional"][0].training.steps == 3


def test_train_with_a_wrong_key_starts_nothing(
    app: SimpleNamespace, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "run.toml"
    file.write_text('[rollout]\nscenarios = "s"\nagent = "a.py:run"\n[training]\nlearning_rat = 1\n')
    assert main(["train", str(file)]) == 2
    assert capsys.readouterr().err == (
        "strop: run.toml: [training] learning_rat: unknown key; did you mean learning_rate?\n"
    )
    assert app.calls == []


def test_serve(app: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("STROP_API_KEY", "secret")
    assert main(["serve", "--adapter", f"mine={tmp_path}", "--port", "0"]) == 0
    asked = app.calls[0][1]
    assert (asked["model"], asked["adapters"], asked["host"]) == ("smollm2", {"mine": tmp_path}, "127.0.0.1")
    assert (asked["port"], asked["api_key"], asked["serving"].kind) == (0, "secret", "local")
    assert main(["serve", "--engine", "vllm", "--engine-url", "http://box:8000"]) == 0
    assert (app.calls[1][1]["serving"].kind, app.calls[1][1]["serving"].url) == ("vllm", "http://box:8000")


def test_serve_says_where_it_is_ready(app: SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    app.serve = lambda *, ready, **_: ready("http://127.0.0.1:8000/v1")
    assert main(["serve", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["base_url"] == "http://127.0.0.1:8000/v1"


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--adapter", "mine"], "must have the form NAME=PATH"),
        (["--adapter", "mine=/absent/folder"], "no such folder"),
        (["--host", "0.0.0.0"], "put a key into STROP_API_KEY"),
        (["--engine-url", "http://box:8000"], "are for --engine vllm; add that"),
        (["--engine", "vllm", "--engine-url", "box"], "must be an address such as http://host:8000"),
    ],
)
def test_serve_refuses(
    app: SimpleNamespace,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    flags: list[str],
    said: str,
) -> None:
    monkeypatch.delenv("STROP_API_KEY", raising=False)
    assert main(["serve", *flags]) == 2
    assert said in capsys.readouterr().err
    assert app.calls == []


def test_judge(app: SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--judge", "judge.toml", "--rubric", "r.md", "--out", "s.jsonl"]
    assert main(["judge", "a.jsonl", *flags, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["judged"] == 2
    job = app.calls[0][1]["positional"][0]
    assert (job.file, job.judge, job.out) == (Path("a.jsonl"), Path("judge.toml"), Path("s.jsonl"))
    assert job.rubric == Path("r.md")
    assert main(["judge", "a.jsonl"]) == 0
    assert "price unknown" in capsys.readouterr().out
    job = app.calls[1][1]["positional"][0]
    assert (job.judge, job.rubric, job.out) == (None, None, Path("scores.jsonl"))


def test_judge_that_ended_early_prints_what_there_is_and_why(
    app: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    result = {"judged": 1, "money": 0.5, "unmetered": 3, "forecast": None}
    app.judge_file = lambda job: SimpleNamespace(
        result=result, ended=errors.Interrupted("interrupted; 1 of 2")
    )
    assert main(["judge", "a.jsonl", "--json"]) == 130
    out, err = capsys.readouterr()
    assert json.loads(out) == result
    assert err == "strop: interrupted; 1 of 2\n"


def test_judge_show_and_replay(app: SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["judge", "a.jsonl", "--show", "--group", "g"]) == 0
    assert capsys.readouterr().out == "group g: no call: nothing to compare\n"
    assert app.calls[0][1]["positional"][1] == "g"
    assert main(["judge", "--replay", "s.jsonl", "--out", "n.jsonl", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"verdicts": 2}
    assert app.calls[1][1]["positional"] == (Path("s.jsonl"), Path("n.jsonl"))


@pytest.mark.parametrize(
    "flags",
    [
        [],
        ["--replay", "s.jsonl"],
        ["a.jsonl", "--replay", "s.jsonl", "--out", "o"],
        ["--replay", "s.jsonl", "--out", "o", "--show"],
        ["a.jsonl", "--group", "g"],
    ],
)
def test_judge_flags_that_do_not_go_together(
    app: SimpleNamespace, capsys: pytest.CaptureFixture[str], flags: list[str]
) -> None:
    assert main(["judge", *flags]) == 2
    assert capsys.readouterr().err.startswith("strop: ")
    assert app.calls == []


def test_grade(app: SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["grade", "a.jsonl", "--policy", "p", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"graded": 4}
    (job,) = app.calls[0][1]["positional"]
    assert (job.file, job.policy, job.references) == (Path("a.jsonl"), "p", ())
    assert (job.model, job.out) == ("smollm2", Path("grades.jsonl"))


def test_report(app: SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "runs/a", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"run": "runs/a", "report": "runs/a/report.html"}

"""strop doctor, and the warning of strop train."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from strop.cli.main import main
from strop.engines.doctor import examine as examining
from strop.engines.doctor.machine import Machine

GB = 10**9
LARGE = Machine(
    python="3.12.1",
    system="Linux x86_64",
    cores=4,
    memory=64 * GB,
    physical=64 * GB,
    free=60 * GB,
    bfloat16=False,
)
RUN = """
[rollout]
scenarios = "scenarios.jsonl"
agent = "agent.py:agent"
"""


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Sets the machine that is found; a large one to begin with, and an empty folder to work in."""
    monkeypatch.chdir(tmp_path)

    def found(machine: Machine) -> None:
        monkeypatch.setattr(examining, "this_machine", lambda torch: machine)

    found(LARGE)
    return found


def run_file(text: str = RUN, *, scenarios: bool = True) -> str:
    Path("run.toml").write_text(text)
    if scenarios:
        Path("scenarios.jsonl").write_text("{}\n")
    return "run.toml"


def doctor(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any], str]:
    """Exit code, the JSON object and standard error."""
    code = main(["doctor", "--json", *arguments])
    out, err = capsys.readouterr()
    return code, json.loads(out) if out else {}, err


def test_nothing_is_missing_for_the_demo(here: Any, capsys: pytest.CaptureFixture[str]) -> None:
    code, found, err = doctor(capsys)
    assert (code, err, found["missing"]) == (0, "", [])
    assert found["of"] == "strop demo"
    assert found["number"] == "float32"
    assert found["parameters"] == 134_515_008
    (memory,) = found["memory"]
    assert memory["verdict"] == "fits"
    assert memory["capacity"] == 64 * GB


def test_what_is_missing_is_said_and_is_exit_code_1(here: Any, capsys: pytest.CaptureFixture[str]) -> None:
    judge = '[judge]\nbase_url = "http://judge.invalid/v1"\nmodel = "m"\napi_key_env = "NO_SUCH_KEY"\n'
    code, found, err = doctor(capsys, run_file(RUN + judge, scenarios=False))
    assert code == 1
    assert err.splitlines() == [f"strop: missing: {item}" for item in found["missing"]]
    first, second = found["missing"]
    assert first.startswith("rollout.scenarios: ")
    assert first.endswith("scenarios.jsonl is not there")
    assert second == "[judge] api_key_env: NO_SUCH_KEY is not set; set it to the judge's key"


def test_memory_that_is_short_names_a_key(here: Any, capsys: pytest.CaptureFixture[str]) -> None:
    here(replace(LARGE, memory=8 * GB))
    code, found, err = doctor(capsys, run_file("[training]\nmicro_batch_tokens = 16384\n" + RUN))
    assert code == 1
    assert found["memory"][0]["verdict"] == "does not fit"
    assert "GB are needed, 8.0 GB are there; set training.micro_batch_tokens = 4096" in err


def test_a_library_that_is_not_installed(
    here: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strop.engines.doctor.versions.OURS", ("torch", "no-such-library"))
    code, found, err = doctor(capsys)
    assert code == 1
    assert found["libraries"][1]["state"] == "absent"
    assert err == "strop: missing: no-such-library is not installed; pip install 'strop[local]'\n"


def test_another_model_has_a_judge_of_its_own_to_find(
    here: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    config = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 100}
    Path("tiny").mkdir()
    Path("tiny/config.json").write_text(json.dumps(config))
    code, found, _ = doctor(capsys, "--model", "tiny")
    assert code == 0
    assert found["of"] == "tiny with default settings"
    assert "the embedded judge is an adapter of smollm2" in found["notes"][0]
    assert "judge that serves" not in {part["part"] for part in found["memory"][0]["parts"]}
    code, found, err = doctor(capsys, run_file(), "--model", "tiny")
    assert code == 1
    assert found["of"] == "run.toml on tiny"
    assert "the embedded judge is an adapter of smollm2" in err


def test_a_python_without_vllm(here: Any, capsys: pytest.CaptureFixture[str]) -> None:
    code, found, err = doctor(capsys, "--vllm-python", "absent/python")
    assert code == 1
    assert found["vllm"]["versions"] == []
    assert err == (
        "strop: missing: absent/python: no such Python; give the one that has vLLM in [engine] python\n"
    )


def test_a_wrong_run_file_or_model_is_one_line(here: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "absent.toml"]) == 2
    assert main(["doctor", "--model", "./absent"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "strop: absent.toml: no such file"
    assert "no such model folder" in lines[1]


@pytest.mark.parametrize("columns", ["80", "120"])
def test_what_stands_in_the_way_comes_last_and_plain(columns: str, tmp_path: Path) -> None:
    """No line of a table is longer than the terminal; no torch is loaded where there is no device."""
    (tmp_path / "run.toml").write_text(RUN)
    code = (
        "import sys; from strop.engines.doctor import machine; "
        "machine.may_have_accelerator = lambda: False; from strop.cli.main import main; "
        "code = main(['doctor', 'run.toml']); assert 'torch' not in sys.modules; sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={"COLUMNS": columns, "PATH": "", "HOME": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout
    *before, last = done.stdout.splitlines()
    assert last.startswith("strop: missing: rollout.scenarios: ")
    tables = [line for line in before if line[:1] in "┏┃┡│└┌┗├"]
    assert tables
    assert max(map(len, tables)) <= int(columns)


def test_train_warns_where_memory_cannot_be_enough(
    here: Any, app: SimpleNamespace, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(examining, "may_have_accelerator", lambda: False)
    here(replace(LARGE, memory=GB // 2))
    monkeypatch.setattr("strop.cli.train.emit_run", lambda *_, **__: None)
    assert main(["train", run_file(), "--json"]) == 0
    err = capsys.readouterr().err
    assert "strop: warning: memory: about " in err
    assert "strop doctor says what of" in err
    assert [name for name, _ in app.calls] == ["train"]
    here(LARGE)
    assert main(["train", run_file(), "--json"]) == 0
    assert "warning" not in capsys.readouterr().err

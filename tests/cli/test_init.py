"""The starter project: complete, valid, and never written over what is there."""

import asyncio
import importlib.util
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from strop.cli.init import STARTER
from strop.cli.main import main
from strop.config import load


@pytest.fixture
def project(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    folder = tmp_path / "mine"
    assert main(["init", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["next"] == f"strop train {folder}/run.toml"
    return folder


def test_files_and_settings(project: Path) -> None:
    assert sorted(path.name for path in project.iterdir()) == sorted(STARTER)
    config = load(project / "run.toml")
    assert config.rollout.agent == f"{project}/agent.py:run"
    assert config.rollout.scenarios == project / "scenarios.jsonl"
    assert config.judge.rubric == project / "rubric.md"


def test_enough_scenarios_for_a_step_and_the_evaluation(project: Path) -> None:
    lines = [json.loads(line) for line in (project / "scenarios.jsonl").read_text().splitlines()]
    assert len({line["scenario_id"] for line in lines}) == len(lines)
    config = load(project / "run.toml")
    assert isinstance(config.evaluation.heldout, int)
    assert len(lines) - config.evaluation.heldout >= config.rollout.groups_per_step


def test_agent_runs_on_an_ordinary_client(project: Path) -> None:
    spec = importlib.util.spec_from_file_location("starter_agent", project / "agent.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    async def create(**request: Any) -> SimpleNamespace:
        assert request["messages"][-1] == {"role": "user", "content": "It burns."}
        message = SimpleNamespace(content="URGENT: fire")
        return SimpleNamespace(choices=[SimpleNamespace(message=message)])

    client = SimpleNamespace(chat=SimpleNamespace(completions=SimpleNamespace(create=create)))
    messages = asyncio.run(module.run(client, SimpleNamespace(data={"message": "It burns."})))
    assert messages[-1] == {"role": "assistant", "content": "URGENT: fire"}


def test_nothing_is_written_over(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "run.toml").unlink()
    (project / "agent.py").write_text("mine")
    assert main(["init", str(project)]) == 2
    assert "agent.py, scenarios.jsonl, rubric.md is there already" in capsys.readouterr().err
    assert (project / "agent.py").read_text() == "mine"
    assert not (project / "run.toml").exists()


def test_folder_that_cannot_be_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main(["init", str(tmp_path / "file")]) == 2
    assert "agent.py: cannot be written (a file is where a folder is needed)" in capsys.readouterr().err

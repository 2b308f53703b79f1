"""A user's agent by name: found, or one line that says why not."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from strop.errors import ConfigError
from strop.rollout.agent import Attempt
from strop.rollout.environment import Label, Scenario
from strop.rollout.loading import load_attempts
from strop.rollout.process_agent import ProcessAgent

SCENARIO = Scenario(scenario_id="s", data={"word": "cat"})


@pytest.fixture(autouse=True)
def _own_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test imports is forgotten after it."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in [name for name in sys.modules if name.startswith("strop_agent_")]:
        monkeypatch.delitem(sys.modules, name)


def agent_file(folder: Path, text: str, name: str = "mine.py") -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def attempt(agent: str) -> Attempt:
    return load_attempts(agent)(SCENARIO, "s/train-0000/0")


def returned(made: Attempt) -> Any:
    client: Any = None
    return asyncio.run(_awaited(made, client))


async def _awaited(made: Attempt, client: Any) -> Any:
    return await made.agent(client, SCENARIO)


RUN = "async def run(client, scenario):\n    return [{'role': 'user', 'content': scenario.data['word']}]\n"


def test_a_function_of_a_file(tmp_path: Path) -> None:
    made = attempt(f"{agent_file(tmp_path, RUN)}:run")
    assert returned(made) == [{"role": "user", "content": "cat"}]
    assert made.truth([]) is None


def test_an_agent_finds_what_lies_beside_it(tmp_path: Path) -> None:
    (tmp_path / "beside_mine.py").write_text("WORD = 'dog'\n")
    text = "from beside_mine import WORD\nasync def run(client, scenario):\n    return WORD\n"
    assert returned(attempt(f"{agent_file(tmp_path, text)}:run")) == "dog"


def test_two_files_of_one_name_stay_apart(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    texts = [RUN.replace("scenario.data['word']", f"'{name}'") for name in ("a", "b")]
    made = [
        load_attempts(f"{agent_file(tmp_path / name, text)}:run")(SCENARIO, "k")
        for name, text in zip(("a", "b"), texts, strict=True)
    ]
    assert [returned(one)[0]["content"] for one in made] == ["a", "b"]


def test_a_module_of_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The console script has its own folder on the path, not the user's."""
    agent_file(tmp_path, RUN, "walked_in.py")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry not in ("", ".")])
    assert returned(attempt("walked_in:run"))[0]["content"] == "cat"
    assert load_attempts("asyncio.events:new_event_loop")


def test_a_command_is_a_process() -> None:
    made = load_attempts(("python", "agent.py"))(SCENARIO, "k")
    assert made.agent == ProcessAgent(("python", "agent.py"))


@pytest.mark.parametrize(
    ("value", "label"),
    [("1", Label(value=1.0)), ("True", Label(value=1.0)), ("0.25", Label(value=0.25)), ("None", None)],
)
def test_a_truth_beside_the_agent_labels_attempts(tmp_path: Path, value: str, label: Label | None) -> None:
    text = (
        f"{RUN}def truth(scenario, messages):\n    assert scenario.scenario_id == 's'\n    return {value}\n"
    )
    made = attempt(f"{agent_file(tmp_path, text)}:run")
    assert made.truth([{"role": "user", "content": "x"}]) == label


@pytest.mark.parametrize("value", ["1.5", "-0.1", "float('nan')", "'yes'", "[]"])
def test_a_truth_that_is_no_share_is_an_error_of_the_truth(tmp_path: Path, value: str) -> None:
    """The runner keeps it as metadata.truth_error; a label out of range would spoil the whole file."""
    made = attempt(f"{agent_file(tmp_path, f'{RUN}def truth(s, m): return {value}')}:run")
    with pytest.raises((ValueError, TypeError)):
        made.truth([])


@pytest.mark.parametrize("name", ["", "run", ":run", "mine.py:", "mine.py"])
def test_a_name_of_another_form_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="must have the form"):
        load_attempts(name)


@pytest.mark.parametrize(
    ("text", "function", "said"),
    [
        (RUN, "walk", "has no function walk"),
        ("run = 3\n", "run", "has no function run"),
        ("def run(:\n", "run", "cannot be imported: SyntaxError in mine.py, line 1: "),
        ("import nonsense_of_mine\n", "run", "cannot be imported: ModuleNotFoundError"),
        ("open('/nowhere/at/all')\n", "run", "cannot be imported: FileNotFoundError"),
        ("import sys\nsys.exit(0)\n", "run", "cannot be imported: SystemExit"),
        ("raise RuntimeError('two\\nlines')\n", "run", "cannot be imported: RuntimeError"),
    ],
)
def test_a_file_that_does_not_work_is_one_line(tmp_path: Path, text: str, function: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_attempts(f"{agent_file(tmp_path, text)}:{function}")
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nowhere/none.py:run", "no such file"),
        ("nowhere.none:run", "cannot be imported: ModuleNotFoundError"),
    ],
)
def test_a_place_that_is_not_there(name: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_attempts(name)

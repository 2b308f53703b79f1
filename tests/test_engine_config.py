"""The [engine] table: who serves, and what does not fit together."""

from pathlib import Path

import pytest

from strop.app.building import vllm_settings
from strop.config import RunConfig, dump, load
from strop.errors import ConfigError

ROLLOUT = '[rollout]\nscenarios = "data/s.jsonl"\nagent = "agent.py:run"\n'


def read(folder: Path, *lines: str) -> RunConfig:
    path = folder / "run.toml"
    path.write_text(ROLLOUT + "[engine]\n" + "\n".join(lines) + "\n")
    return load(path)


@pytest.mark.parametrize(
    "lines",
    [
        [],
        ['kind = "vllm"'],
        ['kind = "vllm"', 'python = "venv/bin/python"', 'args = ["--max-loras", "2"]', "max_restarts = 0"],
        ['kind = "vllm"', 'url = "http://box:8000/v1"', 'folder = "shared"'],
    ],
)
def test_written_down_and_read_again_it_is_the_same(tmp_path: Path, lines: list[str]) -> None:
    config = read(tmp_path, *lines)
    path = tmp_path / "resolved.toml"
    path.write_text(dump(config))
    assert load(path) == config


def test_paths_are_beside_the_file_and_reach_the_server(tmp_path: Path) -> None:
    lines = [
        'kind = "vllm"',
        'python = "venv/bin/python"',
        'args = ["--max-loras", "2"]',
        'folder = "shared"',
    ]
    settings = vllm_settings(read(tmp_path, *lines).engine)
    assert settings.python == tmp_path / "venv/bin/python"
    assert settings.folder == tmp_path / "shared"
    assert settings.args == ("--max-loras", "2")
    assert settings.url is None


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (['kind = "sglang"'], 'kind: \'sglang\' is not allowed; it must be one of "local", "vllm"'),
        (['url = "http://box:8000"'], 'url is for kind = "vllm"; set that, or leave url out'),
        (['python = "python"'], 'python is for kind = "vllm"; set that, or leave python out'),
        (['kind = "vllm"', 'url = "box:8000"'], "url: 'box:8000' is not allowed"),
        (['kind = "vllm"', 'url = "http://b"', 'args = ["-x"]'], "args are for a server that strop starts"),
        (['kind = "vllm"', "start_timeout_s = 0.0"], "start_timeout_s: 0.0 is not allowed"),
    ],
)
def test_what_does_not_fit_is_one_line(tmp_path: Path, lines: list[str], said: str) -> None:
    with pytest.raises(ConfigError) as error:
        read(tmp_path, *lines)
    assert said in str(error.value)
    assert "\n" not in str(error.value)

"""What is loaded when: the light parts stay light, and imports go down only."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
VERBS = (
    "demo",
    "init",
    "warmstart",
    "train",
    "serve",
    "judge",
    "grade",
    "select",
    "predict",
    "attribute",
    "report",
    "doctor",
    "guard",
)
HEAVY = {"torch", "transformers", "peft", "vllm", "ray"}

LOADED = """
import json, sys
{code}
print(json.dumps(sorted(name for name in sys.modules if "." not in name)))
"""


def loaded_by(code: str) -> set[str]:
    """Top-level modules in memory after `code` ran in a fresh interpreter."""
    done = subprocess.run(
        [sys.executable, "-c", LOADED.format(code=code)], capture_output=True, text=True, check=True
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_the_probe_sees_what_is_loaded() -> None:
    assert "decimal" in loaded_by("import decimal")


def test_import_strop_is_light() -> None:
    assert not loaded_by("import strop") & (HEAVY | {"pydantic", "numpy"})


def test_settings_load_no_heavy_library() -> None:
    assert not loaded_by("import strop.config") & HEAVY


@pytest.mark.parametrize(
    "verb", [(), *((verb,) for verb in VERBS)], ids=lambda verb: "".join(verb) or "strop"
)
def test_help_works_and_is_light(verb: tuple[str, ...]) -> None:
    arguments = [*verb, "--help"]
    code = f"from strop.cli.main import main\nassert main({arguments!r}) == 0"
    # typer itself loads pydantic to describe the options of a verb.
    light = {"numpy", "openai", "duckdb", "scipy"} | (set() if verb else {"pydantic"})
    assert not loaded_by(code) & (HEAVY | light)


def test_every_verb_is_in_the_help() -> None:
    code = "from strop.cli.main import main; main(['--help'])"
    text = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    commands = text.partition("Commands:")[2].splitlines()
    assert [line.split()[0] for line in commands if line.strip()] == list(VERBS)


def test_imports_go_down_only() -> None:
    tool = shutil.which("lint-imports", path=str(Path(sys.executable).parent))
    assert tool, "lint-imports belongs to the dev extra"
    done = subprocess.run([tool, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout

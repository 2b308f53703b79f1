"""A user's agent by its name in a run file: "file.py:function" or "module:function"."""

import importlib
import importlib.util
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from strop.errors import ConfigError, in_one_line
from strop.rollout.agent import Attempt, MakeAttempt
from strop.rollout.environment import Label, Scenario
from strop.rollout.process_agent import process_agent
from strop.trajectory.model import Message

TRUTH = "truth"


def load_attempts(agent: str | Sequence[str]) -> MakeAttempt:
    """Attempts by a named agent, or by a command where `agent` is a list of words.

    A function `truth(scenario, messages)` beside the agent, returning a number in [0, 1] or None,
    labels each attempt after its end; training never sees it. Raises ConfigError, one line, where the
    file, module or function is not there or the agent is not callable.
    """
    if not isinstance(agent, str):
        runner = process_agent(agent)
        return lambda _scenario, _key: Attempt(agent=runner)
    place, _, name = agent.rpartition(":")
    if not place or not name:
        raise ConfigError(f"[rollout] agent {agent!r}: must have the form file.py:function")
    module = _module(place, agent)
    function = getattr(module, name, None)
    if not callable(function):
        raise ConfigError(f"[rollout] agent {agent!r}: {place} has no function {name}")
    truth = getattr(module, TRUTH, None)
    return lambda scenario, _key: _attempt(function, truth, scenario)


def _attempt(function: Any, truth: Callable[..., Any] | None, scenario: Scenario) -> Attempt:
    if truth is None:
        return Attempt(agent=function)

    def label(messages: Sequence[Message]) -> Label | None:
        value = truth(scenario, messages)
        if value is None:
            return None
        if not 0 <= float(value) <= 1:
            raise ValueError(f"truth is {value!r}, must be a number from 0 to 1")
        return Label(value=float(value))

    return Attempt(agent=function, truth=label)


def _module(place: str, agent: str) -> ModuleType:
    in_file = place.endswith(".py")
    if in_file and not Path(place).is_file():
        raise ConfigError(f"[rollout] agent {agent!r}: no such file")
    # The agent's own imports are found beside it, as they are when it is run by itself.
    _search(Path(place).parent if in_file else Path.cwd())
    try:
        return _from_file(Path(place)) if in_file else importlib.import_module(place)
    # A user's module may raise anything while it is imported, and may want to end the process.
    except (Exception, SystemExit) as error:
        raise ConfigError(f"[rollout] agent {agent!r}: cannot be imported: {_said(error)}") from error


def _said(error: BaseException) -> str:
    """The error as Python names it, with file and line where what is written there is no Python."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{type(error).__name__} in {Path(error.filename).name}, line {error.lineno}: {error.msg}"
    return f"{type(error).__name__}: {in_one_line(error)}"


def _search(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _from_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"strop_agent_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module

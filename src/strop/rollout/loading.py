"""A user's agent by its name in a run file: "file.py:function" or "module:function"."""

import importlib
import importlib.util
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from strop.errors import ConfigError
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
        return None if value is None else Label(value=float(value))

    return Attempt(agent=function, truth=label)


def _module(place: str, agent: str) -> ModuleType:
    try:
        return _from_file(Path(place)) if place.endswith(".py") else importlib.import_module(place)
    except FileNotFoundError:
        raise ConfigError(f"[rollout] agent {agent!r}: no such file") from None
    # A user's module may raise anything while it is imported.
    except Exception as error:
        raise ConfigError(f"[rollout] agent {agent!r}: cannot be imported: {error!r}") from error


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise FileNotFoundError(path)
    # The agent's own imports are found beside it, as they are when it is run by itself.
    folder = str(path.parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    spec = importlib.util.spec_from_file_location(f"strop_agent_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module

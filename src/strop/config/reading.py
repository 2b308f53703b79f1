"""Settings files read and checked; each mistake is one line: the file, the key, what is allowed."""

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from strop.config.explain import explain
from strop.config.judge import JudgeConfig
from strop.config.run import RunConfig, WarmstartSettings
from strop.errors import ConfigError

Config = TypeVar("Config", bound=BaseModel)


def load(path: Path, overrides: Sequence[str] = ()) -> RunConfig:
    """The run file at `path` with `overrides` ("table.key=value") put over it.

    A value is read as TOML (`0.5`, `true`, `["a", "b"]`) and, where it is none, as text. Relative paths,
    also those of overrides, are relative to the folder of the file. Raises ConfigError.
    """
    data = _read(path)
    run = data.setdefault("run", {})
    if isinstance(run, dict):
        run.setdefault("directory", f"runs/{path.stem}")
    for text in overrides:
        _override(data, text)
    return _validate(RunConfig, data, path, overrides)


def load_judge(path: Path) -> JudgeConfig:
    """The judge file at `path`: the keys of a run file's [judge] table. Raises ConfigError."""
    return _validate(JudgeConfig, _read(path), path)


def load_warmstart(path: Path | None, overrides: Sequence[str] = ()) -> WarmstartSettings:
    """Model, LoRA and warm start as a run file has them, or a file of these tables alone, or no file.

    The run file's `model.adapter` is where the result is to go, so it is not what is started from.
    Raises ConfigError.
    """
    data = {} if path is None else _read(path)
    for text in overrides:
        _override(data, text)
    where = Path("warm start") if path is None else path
    if "rollout" in data:
        run = _validate(RunConfig, data, where, overrides)
        found = WarmstartSettings(model=run.model, lora=run.lora, warmstart=run.warmstart)
    else:
        found = _validate(WarmstartSettings, data, where, overrides)
    return found.model_copy(update={"model": found.model.model_copy(update={"adapter": None})})


def _validate(kind: type[Config], data: dict[str, Any], path: Path, overrides: Sequence[str] = ()) -> Config:
    context = {"base": path.absolute().parent}
    try:
        return kind.model_validate(data, context=context)
    except ValidationError as error:
        raise ConfigError(explain(error, kind, path.name, overrides)) from None


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is not UTF-8 text") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: is not TOML: {error}") from None


def _override(data: dict[str, Any], text: str) -> None:
    key, equals, value = text.partition("=")
    names = key.strip().split(".")
    if not equals or len(names) != 2 or not all(names):
        raise ConfigError(f"--set {text}: must have the form table.key=value")
    table = data.setdefault(names[0], {})
    if not isinstance(table, dict):
        raise ConfigError(f"--set {text}: {names[0]} is no table in the run file")
    table[names[1]] = _value(value.strip())


def _value(text: str) -> Any:
    try:
        parsed = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    return parsed["value"] if len(parsed) == 1 else text

"""Paths in a settings file: relative ones are relative to the folder of that file."""

from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidationInfo


def beside(text: str, info: ValidationInfo) -> Path:
    """`text` as an absolute path; `info.context["base"]` is the folder that holds the settings file.

    Without a context the working directory is the base. `~` is the home folder.
    """
    base = Path((info.context or {}).get("base", "."))
    return (base / Path(text).expanduser()).absolute()


def _path(value: Any, info: ValidationInfo) -> Any:
    return beside(value, info) if isinstance(value, str) and value else value


def _path_or_demo(value: Any, info: ValidationInfo) -> Any:
    return value if isinstance(value, str) and value.startswith("demo:") else _path(value, info)


def _path_or_name(value: Any, info: ValidationInfo) -> Any:
    """A model: a path if written as one or if such a folder stands beside the file, else a name."""
    if not isinstance(value, str) or not value:
        return value
    path = beside(value, info)
    return str(path) if value.startswith((".", "/", "~")) or path.is_dir() else value


def _agent(value: Any, info: ValidationInfo) -> Any:
    """An agent: a list is a command; the file of "file.py:function" is made absolute."""
    if isinstance(value, list):
        return tuple(value)
    file, colon, function = value.rpartition(":") if isinstance(value, str) else ("", "", "")
    return f"{beside(file, info)}:{function}" if colon and file.endswith(".py") else value


FilePath = Annotated[Path, BeforeValidator(_path)]
"""A path, made absolute."""

DemoOrPath = Annotated[Annotated[str, Field(pattern=r"^demo:\w+$")] | Path, BeforeValidator(_path_or_demo)]
"""A path, made absolute, or the name of something built in: "demo:order_desk"."""

CountOrPath = Annotated[Annotated[int, Field(ge=0)] | Path, BeforeValidator(_path)]
"""A whole number from 0, or a path, made absolute."""

ShareOrPath = Annotated[Annotated[float, Field(ge=0, le=0.9)] | Path, BeforeValidator(_path)]
"""A share from 0 to 0.9, or a path, made absolute."""

SwitchOrPath = Annotated[bool | Path, BeforeValidator(_path)]
"""True, false, or a path, made absolute."""

Words = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(min_length=1)]
"""A list of words, none empty."""

AgentName = Annotated[str | Words, BeforeValidator(_agent)]
"""An agent: "file.py:function" with an absolute file, "module:function", "demo:order_desk", or a command."""

ModelName = Annotated[str, BeforeValidator(_path_or_name)]
"""The name of a model, or the absolute path of its folder as text."""

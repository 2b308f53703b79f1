"""Resolved settings as TOML, so that a run folder says what it was made with."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel


def dump(config: BaseModel) -> str:
    """TOML text that reads back to an equal config; what is None is left out. Paths are absolute."""
    tables: list[str] = []
    plain: list[str] = []
    for key in type(config).model_fields:
        value = getattr(config, key)
        if isinstance(value, BaseModel):
            tables.append(f"[{key}]\n{dump(value)}")
        elif value is not None:
            plain.append(f"{key} = {_toml(value)}\n")
    return "\n".join(["".join(plain), *tables] if plain else tables)


def _toml(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case str() | Path():
            return _quoted(str(value))
        case list() | tuple():
            return f"[{', '.join(map(_toml, value))}]"
        case Mapping():
            items = (f"{_quoted(key)} = {_toml(item)}" for key, item in value.items())
            return f"{{{', '.join(items)}}}"
        case BaseModel():
            return _toml(value.model_dump(exclude_none=True))
        case _:
            raise TypeError(f"no TOML form for {type(value).__name__}")


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")

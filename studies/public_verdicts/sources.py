"""Where the public data lie: `STROP_DATA`, or a folder `shared/data` beside the checkout."""

import json
import os
from pathlib import Path
from typing import Any

from strop.errors import InputError

ROOT = Path(__file__).parents[2]


def data_folder(name: str) -> Path:
    """The folder of one data set, there or not."""
    return Path(os.environ.get("STROP_DATA", ROOT.parent / "shared" / "data")) / name


def read_json(path: Path) -> Any:
    """One JSON document. Raises InputError where the file is missing."""
    return json.loads(_text(path))


def read_lines(path: Path) -> list[dict[str, Any]]:
    """One JSON object a line. Raises InputError where the file is missing."""
    return [json.loads(line) for line in _text(path).splitlines() if line.strip()]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path.name}: no such data at {path.parent}; set STROP_DATA") from error

"""Good replies kept by content, so that judging the same texts again is free."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from strop.trajectory.atomic import replacing


def cache_key(parts: Sequence[object]) -> str:
    """SHA-256 of `parts`, whatever JSON can hold; other values by their text."""
    return hashlib.sha256(json.dumps(parts, default=str).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class ReplyCache:
    """A directory with one JSON file a reply, written aside and renamed."""

    directory: Path

    def get(self, key: str) -> Mapping[str, Any] | None:
        """What was put under `key`; None where nothing was, or the file cannot be read."""
        try:
            value = json.loads(self._path(key).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return value if isinstance(value, dict) else None

    def put(self, key: str, value: Mapping[str, Any]) -> None:
        """Keep `value`; readers see the whole of it or nothing. Raises StropError where the disk refuses."""
        with replacing(self._path(key)) as file:
            file.write(json.dumps(value).encode())

    def _path(self, key: str) -> Path:
        return self.directory / key[:2] / f"{key}.json"

"""Good replies kept by content, so that judging the same texts again is free."""

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from strop.judge.prompt import PROMPT_VERSION, Prompt
from strop.judge.rubric import rubric_hash
from strop.judge.settings import JudgeSettings


def cache_key(settings: JudgeSettings, rubric: str, prompt: Prompt, repeat: int = 0) -> str:
    """SHA-256 over model, sampling, prompt version, rubric, texts in the order shown, and repeat index.

    The nonce is left out: it is fresh in every prompt and kept beside the reply.
    """
    texts: Sequence[str] = [prompt.context, *(prompt.attempts[name] for name in prompt.shown.values())]
    parts = [
        settings.base_url, settings.model, settings.temperature, settings.max_tokens, settings.seed,
        PROMPT_VERSION, rubric_hash(rubric), texts, repeat,
    ]  # fmt: skip
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


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
        """Keep `value`; readers see the whole of it or nothing."""
        path = self._path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, aside = tempfile.mkstemp(dir=path.parent, prefix=".reply-")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(value, file)
        os.replace(aside, path)

    def _path(self, key: str) -> Path:
        return self.directory / key[:2] / f"{key}.json"

"""The peer as a process: started once, given jobs, its answers read."""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

from strop.errors import InputError
from strop.trajectory.model import Group

How = Literal["ask", "record", "replay", "show"]
SCRIPT = Path(__file__).with_name("peer.py")
PROBE = "from importlib.metadata import version; import art.rewards; print(version('openpipe-art'))"


def peer_version(python: str) -> str:
    """The version of openpipe-art under that Python. Raises InputError, one line, where it has none."""
    try:
        asked = subprocess.run(
            [python, "-I", "-c", PROBE], capture_output=True, text=True, timeout=120, env=_environment()
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputError(f"{python}: cannot be run ({error}); name a Python that has openpipe-art") from error
    if asked.returncode:
        said = (asked.stderr.strip().splitlines() or ["it says nothing"])[-1]
        raise InputError(f"{python}: openpipe-art cannot be imported ({said}); see --help for how to make it")
    return asked.stdout.strip().splitlines()[-1]


class Peer:
    """A context manager over the process. One job at a time."""

    def __init__(self, python: str) -> None:
        self._python = python

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [self._python, "-I", str(SCRIPT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=_environment(),
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def score(
        self, groups: Sequence[Group], how: How, *, base_url: str = "", at_once: int = 1
    ) -> Mapping[str, Any]:
        """The peer's answer to one job; what it holds is said in peer.py. Raises InputError if it died."""
        attempts = [[list(t.messages) for t in group.trajectories] for group in groups]
        job = {"groups": attempts, "how": how, "base_url": base_url, "at_once": at_once}
        channel_in, channel_out = self._process.stdin, self._process.stdout
        assert channel_in is not None
        assert channel_out is not None
        channel_in.write(json.dumps(job) + "\n")
        channel_in.flush()
        line = channel_out.readline()
        if not line:
            raise InputError(f"{self._python}: the peer ended with code {self._process.wait()}")
        answer: Mapping[str, Any] = json.loads(line)
        return answer


def _environment() -> dict[str, str]:
    """Ours without what would send the peer's requests elsewhere, or let it report home."""
    kept = {key: value for key, value in os.environ.items() if not key.upper().endswith("_PROXY")}
    return {
        **kept,
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "WEAVE_DISABLED": "true",
        "WANDB_MODE": "disabled",
    }

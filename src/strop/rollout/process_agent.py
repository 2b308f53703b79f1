"""An agent in another process: any program that reads OPENAI_BASE_URL and OPENAI_API_KEY."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from strop.rollout.environment import Scenario

if TYPE_CHECKING:
    from openai import AsyncOpenAI

TAIL_BYTES = 1 << 14


class ProcessFailed(RuntimeError):
    """The agent's process ended with a nonzero exit code."""


@dataclass(frozen=True, slots=True)
class ProcessAgent:
    """Runs `command` for one attempt; see `process_agent`."""

    command: Sequence[str]

    async def __call__(self, client: AsyncOpenAI, scenario: Scenario, /) -> None:
        # A file, not a pipe: a grandchild that outlives the agent would keep a pipe open.
        with tempfile.TemporaryFile() as errors:
            process = await asyncio.create_subprocess_exec(
                *self.command,
                env={**os.environ, **_settings(client, scenario)},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
            )
            try:
                await process.wait()
            finally:
                _kill_family(process.pid)
                await process.wait()
            if process.returncode:
                raise ProcessFailed(f"exit code {process.returncode}: {_last_line(errors)}")


def process_agent(command: Sequence[str]) -> ProcessAgent:
    """An agent that runs `command` once an attempt.

    Its environment has OPENAI_BASE_URL and OPENAI_API_KEY of the attempt, and STROP_SCENARIO: a JSON
    object with scenario_id and data. Standard output is ignored; the conversation is what was
    recorded. A nonzero exit code makes the attempt a failure with the last line of standard error.
    At the deadline the process and its children are killed.
    """
    return ProcessAgent(tuple(command))


def _settings(client: AsyncOpenAI, scenario: Scenario) -> dict[str, str]:
    return {
        "OPENAI_BASE_URL": str(client.base_url).rstrip("/"),
        "OPENAI_API_KEY": client.api_key,
        "STROP_SCENARIO": json.dumps({"scenario_id": scenario.scenario_id, "data": dict(scenario.data)}),
    }


def _kill_family(pid: int) -> None:
    # The process leads its own session, so its children cannot outlive the attempt.
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _last_line(errors: IO[bytes]) -> str:
    end = errors.seek(0, os.SEEK_END)
    errors.seek(max(0, end - TAIL_BYTES))
    lines = errors.read().decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "nothing on standard error"

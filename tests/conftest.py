"""What tests of several packages share. Nothing heavy is loaded before a test asks for it."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# How long an example takes says something of the machine, nothing of the code; and what passes today is to
# pass tomorrow. `pytest --hypothesis-profile=explore` looks for examples that nobody has met.
UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("strop", UNHURRIED, derandomize=True)
settings.register_profile("explore", UNHURRIED)
settings.load_profile("strop")


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a tiny random Llama with a tokenizer of single letters."""
    from local_model import write_model

    return write_model(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="session")
def vllm_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A real vLLM on a tiny model, one for all tests: to start it takes most of a minute."""
    if "STROP_VLLM_PYTHON" not in os.environ:
        pytest.skip("needs a vLLM: make test-vllm, or set STROP_VLLM_PYTHON to a Python that has one")
    from vllm_server import Supervised

    server = Supervised(tmp_path_factory.mktemp("vllm"))
    try:
        yield server
    finally:
        server.engine.close()


@pytest.fixture(scope="module")
def patient_sampler() -> Iterator[None]:
    """An agent is never late because the machine is busy: that alone would change what a cohort says."""
    from strop.engines.local.sampler import LocalSampler

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(LocalSampler.__init__.__kwdefaults__, "patience", 250.0)
        yield


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Torch on one thread: on tiny tensors more of them only wait for each other."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)

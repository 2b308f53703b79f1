"""What tests of several packages share. Nothing heavy is loaded before a test asks for it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# How long an example takes says something of the machine, nothing of the code.
settings.register_profile("strop", deadline=None)
settings.load_profile("strop")


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a tiny random Llama with a tokenizer of single letters."""
    from local_model import write_model

    return write_model(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Torch on one thread: on tiny tensors more of them only wait for each other."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)

"""The bare base as an adapter without effect.

Where a vLLM computes LoRA on a processor (0.32), requests for its base model that share a batch with requests
for adapters are answered by whatever adapter has the last of its places: the place -1, which means none, is
taken for the last one. An adapter of zeros has a place of its own, and is the base wherever it is computed.
"""

import shutil
from pathlib import Path

import torch
from safetensors.torch import save_file

from strop.engines.adapter_files import ADAPTER_CONFIG, ADAPTER_WEIGHTS
from strop.engines.local.weights import read_adapter


def write_bare(adapter: Path, folder: Path) -> None:
    """A new folder with that adapter, all its weights zero. Raises ModelError for what is no adapter."""
    zeros = {name: torch.zeros_like(tensor) for name, tensor in read_adapter(adapter).items()}
    folder.mkdir()
    shutil.copyfile(adapter / ADAPTER_CONFIG, folder / ADAPTER_CONFIG)
    save_file(zeros, folder / ADAPTER_WEIGHTS, metadata={"format": "pt"})

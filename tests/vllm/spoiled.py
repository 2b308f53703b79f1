"""Adapters as a broken trainer would write them: if served at all, as another model than it should be."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from strop.engines.local.weights import save_adapter

Tensors = dict[str, torch.Tensor]
Save = Callable[[Any, Path], None]
WIDE = 64
"""More than the 16 that the server makes room for."""


def rewriting(
    change: Callable[[Tensors], Mapping[str, torch.Tensor]], config: Mapping[str, object] | None = None
) -> Save:
    """What saves an adapter with its tensors changed, and its config by the keys given."""

    def save(adapter: Any, folder: Path) -> None:
        save_adapter(adapter, folder)
        tensors = {key: value.contiguous() for key, value in change(load_file(folder / WEIGHTS)).items()}
        save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
        written = json.loads((folder / CONFIG).read_text())
        (folder / CONFIG).write_text(json.dumps({**written, **(config or {})}))

    return save


WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"


def other_prefix(tensors: Tensors) -> Tensors:
    """The modules of a model that wraps this one differently."""
    return {key.replace("model.layers", "language_model.layers"): value for key, value in tensors.items()}


def other_rank(tensors: Tensors) -> Tensors:
    """The same product of matrices at rank WIDE, the rest of it zeros."""

    def wide(key: str, value: torch.Tensor) -> torch.Tensor:
        rows = "lora_A" in key
        shape = (WIDE, value.shape[1]) if rows else (value.shape[0], WIDE)
        padded = torch.zeros(shape, dtype=value.dtype)
        padded[: value.shape[0], : value.shape[1]] = value
        return padded

    return {key: wide(key, value) for key, value in tensors.items()}


def other_base(tensors: Tensors) -> Tensors:
    """As of a model with half the hidden size."""
    return {key: value[:, ::2] if "lora_A" in key else value[::2] for key, value in tensors.items()}


def silent(tensors: Tensors) -> Tensors:
    """Says what the base says."""
    return {key: torch.zeros_like(value) for key, value in tensors.items()}


def stale(before: Path) -> Callable[[Tensors], Tensors]:
    """The tensors of the adapter in another folder."""
    return lambda _tensors: load_file(before / WEIGHTS)

"""A model without its weights: its sizes, and whether an adapter is one that vLLM applies whole."""

import hashlib
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from strop.engines.local.slots import CacheShape
from strop.engines.local.weights import read_adapter, wearing
from strop.engines.vllm.command import RANKS
from strop.engines.vllm.serving import ADAPTER_FILES
from strop.errors import ModelError, in_one_line


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterFolder:
    """An adapter that may be served.

    `digest` of its files; its largest `rank`; the `modules` that it is on, by the last part of their names;
    whether it `changes` anything: a fresh one, whose B is zero, is the bare model.
    """

    folder: Path
    digest: str
    rank: int
    modules: frozenset[str]
    changes: bool


class Outline:
    """A causal LM on no device. Raises ModelError where its config cannot be read."""

    def __init__(self, source: Path | str) -> None:
        try:
            config = AutoConfig.from_pretrained(source)
            with torch.device("meta"):
                self._model: Any = AutoModelForCausalLM.from_config(config)
        except (OSError, ValueError) as error:
            raise ModelError(f"{source}: cannot read this model's config: {in_one_line(error)}") from error
        text = config.get_text_config()
        self.vocabulary = int(self._model.get_output_embeddings().weight.shape[0])
        self.context = int(getattr(text, "max_position_embeddings", None) or 1 << 30)
        self.parameters = sum(parameter.numel() for parameter in self._model.parameters())

    def token_bytes(self, dtype: torch.dtype) -> int:
        """Of a token's keys and values, in all layers."""
        return replace(CacheShape.of(self._model), dtype=dtype).token_bytes

    def adapter(self, folder: Path) -> AdapterFolder:
        """Raises ModelError for one that vLLM would not apply, or not wholly.

        vLLM passes over tensors of modules that it does not know, in silence, and over saved embeddings and
        heads; a LoRA on the head it applies to what it samples, and in a batch to other rows of a prompt than
        they are of. So all tensors must be LoRA of the decoder's linear layers, in the model's own names and
        shapes, of a rank that there is room for.
        """
        with _quiet():
            wearing(self._model, folder)
        tensors = read_adapter(folder)
        rank = max((tensor.shape[0] for name, tensor in tensors.items() if "lora_A" in name), default=0)
        if rank > RANKS[-1]:
            raise ModelError(f"{folder}: of rank {rank}; vLLM has room for {RANKS[-1]}, so read it locally")
        found = hashlib.sha256()
        for name in ADAPTER_FILES:
            found.update((folder / name).read_bytes())
        changes = any(bool(tensor.any()) for name, tensor in tensors.items() if "lora_B" in name)
        return AdapterFolder(
            folder=folder,
            digest=found.hexdigest(),
            rank=rank,
            modules=frozenset(name.split(".lora_")[0].rpartition(".")[2] for name in tensors),
            changes=changes,
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """Without PEFT's warnings: that nothing is copied to no device, and of tied heads, an error here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*copying from a non-meta parameter")
        warnings.filterwarnings("ignore", message="Model has `tie_word_embeddings=True`")
        yield

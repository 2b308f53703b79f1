"""Small models of every family that has a lean pass, with random weights of some size."""

from collections.abc import Callable
from typing import Any

from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from local_model import SIZES as SMALL

SIZES = {**SMALL, "vocab_size": 96, "num_hidden_layers": 3, "initializer_range": 0.2}
FAMILIES: dict[str, Callable[[], Any]] = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SIZES)),
    "tied": lambda: LlamaForCausalLM(LlamaConfig(**SIZES, tie_word_embeddings=True)),
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**SIZES)),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**SIZES, head_dim=24)),
    "sliding": lambda: MistralForCausalLM(MistralConfig(**SIZES, sliding_window=50)),
}

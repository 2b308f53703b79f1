"""Tiny random models of many architectures, as transformers builds them from their configs."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM

from local_model import SIZES

WINDOW = 3
HEADS = {"head_dim": 16, "query_pre_attn_scalar": 16}
EXPERTS = {"moe_intermediate_size": 32, "num_experts_per_tok": 2}
MIXED = ["sliding_attention", "full_attention"]

PACKED: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "llama": ("LlamaConfig", {}),
    "tied": ("LlamaConfig", {"tie_word_embeddings": True}),
    "qwen2": ("Qwen2Config", {}),
    "qwen3": ("Qwen3Config", {"head_dim": 24, "tie_word_embeddings": True}),
    "qwen3_moe": ("Qwen3MoeConfig", {"num_experts": 4, **EXPERTS}),
    "sliding": ("MistralConfig", {"sliding_window": WINDOW}),
    "mixed": ("Qwen2Config", {"use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 1}),
    "gemma2": (
        "Gemma2Config",
        {
            **HEADS,
            "sliding_window": WINDOW,
            "attn_logit_softcapping": 0.5,
            "final_logit_softcapping": 2.0,
        },
    ),
    "gemma3": ("Gemma3TextConfig", {**HEADS, "sliding_window": WINDOW, "layer_types": MIXED}),
    "cohere": ("CohereConfig", {}),
    "granite": ("GraniteConfig", {"logits_scaling": 4.0, "embedding_multiplier": 3.0}),
    "gpt2": ("GPT2Config", {"n_embd": 64, "n_layer": 2, "n_head": 4, "num_key_value_heads": 4}),
}
"""Models whose rows are packed along branches. The windows are shorter than the rows of any test, and
the soft caps so low that leaving them out shows."""

MASKED: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "gpt_oss": (
        "GptOssConfig",
        {"head_dim": 16, "sliding_window": WINDOW, "layer_types": MIXED, "num_local_experts": 4},
    ),
}
"""Models whose attention has sinks of its own, which branches cannot have."""

ALONE: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "mamba": ("MambaConfig", {}),
    "lfm2": ("Lfm2Config", {"layer_types": ["conv", "full_attention"]}),
    "qwen3_next": (
        "Qwen3NextConfig",
        {
            **EXPERTS,
            "layer_types": ["linear_attention", "full_attention"],
            "num_experts": 4,
            "shared_expert_intermediate_size": 32,
            "linear_num_value_heads": 4,
            "linear_num_key_heads": 2,
            "linear_key_head_dim": 16,
            "linear_value_head_dim": 16,
            "head_dim": 16,
        },
    ),
    "llama4": (
        "Llama4TextConfig",
        {"attention_chunk_size": 4, "num_local_experts": 2, "intermediate_size_mlp": 96, "head_dim": 16},
    ),
    "bloom": ("BloomConfig", {"n_layer": 2, "n_head": 4}),
}
"""Models that cannot read trees: recurrence, convolution, linear attention, chunks, own positions."""

EVERY: Mapping[str, tuple[str, Mapping[str, Any]]] = {**PACKED, **MASKED, **ALONE}

ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
TARGETS: Mapping[str, list[str]] = {
    "qwen3_moe": ATTENTION,
    "llama4": ATTENTION,
    "qwen3_next": [*ATTENTION, "in_proj_qkvz", "out_proj"],
    "mamba": ["in_proj", "x_proj"],
}
"""Layers for a LoRA where all linear ones cannot have it: PEFT refuses some, and experts cannot be folded."""


def family(name: str, seed: int = 3, **changes: Any) -> Any:
    """A frozen model in eval mode, also its biases and norm weights random, as none of them are at birth."""
    config, own = EVERY[name]
    torch.manual_seed(seed)
    build: Callable[..., Any] = getattr(transformers, config)
    model = AutoModelForCausalLM.from_config(build(**{**SIZES, **own, **changes}))
    for key, parameter in model.named_parameters():
        if parameter.dim() == 1 and ("norm" in key or "bias" in key or "ln_" in key):
            parameter.data.add_(0.1 * torch.randn(parameter.shape))
    return model.eval().requires_grad_(False)

"""What the tests of the local engine share: a tiny random Llama and its tokenizer, and rows by hand."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from tokenizers.decoders import Fuse
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from strop.trajectory.tokens import Row

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ .,:\n"
SPECIAL = ["<unk>", "<s>", "</s>"]
SIZES: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "initializer_range": 0.1,
}
TEMPLATE = (
    "{% for m in messages %}{{ '<s>' + m['role'] + ': ' + m['content'] + '</s>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<s>assistant: ' }}{% endif %}"
)


def make_row(
    ids: Sequence[int],
    mask: Sequence[int] | Sequence[bool],
    *,
    temperature: float = 1.0,
    logprobs: Sequence[float] | None = None,
    name: str = "t",
) -> Row:
    """A row whose sampler's log-probs are -1 each unless given, one a sampled token."""
    chosen = np.array(mask, dtype=np.bool_)
    held = np.zeros(len(ids))
    held[chosen] = -1.0 if logprobs is None else logprobs
    return Row(
        trajectory_id=name,
        ids=np.array(ids, dtype=np.int64),
        mask=chosen,
        logprobs=held,
        turn_of=np.where(chosen, 0, -1).astype(np.int64),
        temperature=temperature,
    )


def write_model(folder: Path, seed: int = 0, **changes: Any) -> Path:
    """Save a random Llama with a tokenizer of single letters and a chat template."""
    torch.manual_seed(seed)
    model = LlamaForCausalLM(LlamaConfig(**{**SIZES, **changes}, bos_token_id=1, eos_token_id=2))
    model.save_pretrained(folder)
    return write_tokenizer(folder)


def write_tokenizer(folder: Path) -> Path:
    """Save a tokenizer of single letters with a chat template beside a model of 64 words."""
    words = {token: index for index, token in enumerate([*SPECIAL, *LETTERS])}
    backend = Tokenizer(WordLevel(words, unk_token="<unk>"))
    backend.pre_tokenizer = Split("", "isolated")
    backend.decoder = Fuse()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, unk_token="<unk>", bos_token="<s>", eos_token="</s>"
    )
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    return folder


def transformers_logits(model: Any, ids: Sequence[int]) -> torch.Tensor:
    """[T, V] of one row alone by the model's own plain attention, whatever attention the model is set to."""
    base = model.get_base_model()
    chosen = base.config._attn_implementation
    base.set_attn_implementation("eager")
    logits: torch.Tensor = model(input_ids=torch.tensor([list(ids)])).logits[0]
    base.set_attn_implementation(chosen)
    return logits

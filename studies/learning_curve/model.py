"""The tiny model of the study on the disk: a random Llama, a tokenizer of letters, a fresh adapter a seed."""

from pathlib import Path

import torch
from tokenizers import Tokenizer
from tokenizers.decoders import Fuse
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from strop.engines.local.weights import LoraShape, adapted, load_base, save_adapter
from studies.learning_curve.task import LETTERS, SPECIAL


def write_model(folder: Path) -> Path:
    """Save the model and its tokenizer."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        initializer_range=0.1,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    backend = Tokenizer(
        WordLevel({token: i for i, token in enumerate([*SPECIAL, *LETTERS])}, unk_token="<unk>")
    )
    backend.pre_tokenizer = Split("", "isolated")
    backend.decoder = Fuse()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, unk_token="<unk>", bos_token="<s>", eos_token="</s>", pad_token="<unk>"
    )
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    tokenizer.save_pretrained(folder)
    return folder


def write_adapter(model: Path, folder: Path, rank: int, seed: int) -> Path:
    """Save the fresh adapter that both trainers start from under this seed."""
    base = load_base(str(model), torch.float32, "cpu")
    save_adapter(adapted(base, LoraShape(rank=rank, alpha=2.0 * rank), None, seed), folder)
    return folder

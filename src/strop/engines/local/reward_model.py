"""A reward model opened: body and head that are read at any token, or only whole, as transformers calls it.

Where the body is causal and the head is a layer on its states, one pass over a conversation gives all its
prefixes, in batches, cut at the model's context. Both are tried out on a few tokens when the model is opened;
any other model is asked as transformers would, one conversation at a time.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
)

from strop.engines.adapter_files import ADAPTER_CONFIG
from strop.engines.embedded import resolve_model
from strop.engines.local.head import Head, body_of, head_of, logits_of
from strop.engines.local.reward_kind import Found, Pick, RewardConfig, found_out, outputs, picking
from strop.engines.local.tokenizer import HFTokenizer
from strop.engines.local.weights import load_base, pick_device, pick_dtype
from strop.errors import ModelError, in_one_line

PROBE = 12
"""Tokens; what comes after the first half must not change what is read there."""
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 0.05}
"""Share of the larger number that rounding may move a score or a state by."""
CLASSES = {"sequence": AutoModelForSequenceClassification, "steps": AutoModelForTokenClassification}
UNLIMITED = 1 << 30


Alone = Callable[[Tensor, list[int]], Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """`alone` scores a row, ids [T], at its ends, n counts of tokens, as transformers' own call does: [n].
    `body` and `head`, [n, d] states to [n] scores, where one pass gives the same; else None."""

    alone: Alone
    body: Any = None
    head: Callable[[Tensor], Tensor] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardModel:
    """`max_length` tokens fit. `pad` is the id that the model takes for padding: see `last`."""

    tokenizer: HFTokenizer
    found: Found
    parts: Parts
    device: str
    max_length: int
    pad: int | None = None

    def last(self, ids: Tensor, end: int) -> int:
        """Where a step that ends after `end` tokens is read. transformers reads a conversation at its last
        token that is not padding, so before a closing one that padding shares (pad = eos)."""
        if self.found.kind != "sequence" or self.pad is None:
            return end - 1
        real = (ids[:end] != self.pad).nonzero()
        return int(real[-1]) if len(real) else 0


def describe(asked: RewardConfig) -> tuple[HFTokenizer, Found]:
    """What can be said of a model without its weights. Raises ModelError, ConfigError."""
    source = resolve_model(asked.model)
    if isinstance(source, Path) and (source / ADAPTER_CONFIG).is_file():
        raise ModelError(f"{asked.model}: an adapter; merge it into its base and give that")
    tokenizer = HFTokenizer.load(source, chat=False)
    return tokenizer, found_out(asked, _config(source), tokenizer)


def open_reward_model(asked: RewardConfig) -> RewardModel:
    """Raises ModelError for what cannot be read whole, ConfigError where `asked` must say more."""
    tokenizer, found = describe(asked)
    source, device = resolve_model(asked.model), pick_device(asked.device)
    dtype = pick_dtype(asked.dtype, device)
    if found.kind == "words":
        base = load_base(source, dtype, device)
        parts = _words(base, found)
    else:
        base = _loaded(source, found, dtype, device)
        parts = _classifier(base, found)
    fits = min(_context(base), tokenizer.longest, asked.max_length or UNLIMITED)
    return RewardModel(
        tokenizer=tokenizer,
        found=found,
        parts=parts,
        device=device,
        max_length=fits,
        pad=base.config.get_text_config().pad_token_id,
    )


def _config(source: Path | str) -> Any:
    try:
        config = AutoConfig.from_pretrained(source, trust_remote_code=False)
    except (OSError, ValueError, KeyError) as error:
        raise ModelError(f"{source}: cannot read its config: {in_one_line(error)}") from error
    count = outputs(config)
    if count is not None:
        config.num_labels = count
    return config


def _loaded(source: Path | str, found: Found, dtype: torch.dtype, device: str) -> Any:
    config = _config(source)
    auto = CLASSES[found.kind]
    try:
        known = auto._model_mapping[type(config)]
        chosen: Any = _with_two_layers(known) if found.two_layers else known
        model, loading = chosen.from_pretrained(source, config=config, dtype=dtype, output_loading_info=True)
    except KeyError as error:
        raise ModelError(
            f"{source}: transformers has no {config.model_type} of kind {found.kind}; its code is not run"
        ) from error
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise ModelError(f"{source}: cannot load this model: {in_one_line(error)}") from error
    if loading["missing_keys"]:
        first = min(loading["missing_keys"])
        raise ModelError(
            f"{source}: {len(loading['missing_keys'])} weights are not in its files, {first} among them; a "
            "reward model needs its trained head"
        )
    return model.to(device).eval().requires_grad_(False)


@cache
def _with_two_layers(known: Any) -> Any:
    """The class with Qwen2.5-Math's head in place of one linear layer."""

    def build(self: Any, config: Any) -> None:
        known.__init__(self, config)
        size = config.get_text_config().hidden_size
        self.score = nn.Sequential(nn.Linear(size, size), nn.ReLU(), nn.Linear(size, config.num_labels))

    return type(known.__name__, (known,), {"__init__": build})


def _words(base: Any, found: Found) -> Parts:
    whole, body = head_of(base), body_of(base)
    assert found.words is not None, "found with the kind"
    two = Head(weight=whole.weight[list(found.words)], cap=whole.cap, scale=whole.scale)

    def head(states: Tensor) -> Tensor:
        logits = logits_of(states.to(two.weight.dtype), two)
        return logits[:, 0] - logits[:, 1]

    def alone(ids: Tensor, ends: list[int]) -> Tensor:
        states = body(input_ids=ids[None], use_cache=False).last_hidden_state[0]
        return head(states[[end - 1 for end in ends]])

    return Parts(alone=alone, body=body, head=head) if _is_causal(body, base) else Parts(alone=alone)


def _classifier(model: Any, found: Found) -> Parts:
    pick = picking(model.config, found.label)
    alone = _ends_alone(model, pick) if found.kind == "sequence" else _tokens_alone(model, pick)
    body, score = model.base_model, getattr(model, "score", None)
    if score is None or body is model or not _is_causal(body, model):
        return Parts(alone=alone)

    def head(states: Tensor) -> Tensor:
        return pick(score(states))

    ids = _probe(model)
    states = body(input_ids=ids[None], use_cache=False).last_hidden_state[0]
    same = _close(head(states[-1:]), alone(ids, [len(ids)]), model.dtype)
    return Parts(alone=alone, body=body, head=head) if same else Parts(alone=alone)


def _ends_alone(model: Any, pick: Pick) -> Alone:
    def scores(ids: Tensor, ends: list[int]) -> Tensor:
        return torch.cat([pick(model(input_ids=ids[None, :end]).logits) for end in ends])

    return scores


def _tokens_alone(model: Any, pick: Pick) -> Alone:
    def scores(ids: Tensor, ends: list[int]) -> Tensor:
        return pick(model(input_ids=ids[None]).logits[0])[[end - 1 for end in ends]]

    return scores


@torch.inference_mode()
def _is_causal(body: Any, model: Any) -> bool:
    """Whether a token's state is the same whatever comes after it, padding too."""
    ids = _probe(model)
    half = len(ids) // 2
    short = body(input_ids=ids[None, :half], use_cache=False).last_hidden_state[0]
    seen = torch.ones_like(ids)
    seen[half:] = 0
    padded = body(input_ids=ids[None], attention_mask=seen[None], use_cache=False).last_hidden_state[0]
    whole = body(input_ids=ids[None], use_cache=False).last_hidden_state[0]
    return all(_close(other[:half], short, model.dtype) for other in (padded, whole))


def _probe(model: Any) -> Tensor:
    """Ids from all over the vocabulary, none of which is padding."""
    config = model.config.get_text_config()
    ids = [config.vocab_size * part // (PROBE + 1) for part in range(1, PROBE + 1)]
    if config.pad_token_id in ids:
        ids = [token + 1 for token in ids]
    return torch.tensor(ids, device=model.device)


def _close(one: Tensor, other: Tensor, dtype: torch.dtype) -> bool:
    apart, size = (one.float() - other.float()).norm(), other.float().norm()
    return bool(apart <= TOLERANCE.get(dtype, TOLERANCE[torch.bfloat16]) * (size + 1e-6))


def _context(model: Any) -> int:
    length: int | None = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    return length or UNLIMITED

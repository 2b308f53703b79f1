"""The head of a model: what its logits are of a hidden state, beyond the product with its weight."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from strop.engines.local.lean import agrees
from strop.errors import ModelError


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """Logits are cap · tanh(scale · W h / cap), as Gemma, Cohere and Granite do; `cap` None: scale · W h."""

    weight: Tensor
    cap: float | None = None
    scale: float = 1.0


def body_of(model: Any) -> Any:
    """The module of a causal LM that gives hidden states. Raises ModelError where there is none."""
    for body in (model.get_decoder(), model.base_model, getattr(model, "model", model)):
        if body is not model:
            return body
    raise ModelError(f"{model.config.model_type}: no body of its own, so it cannot be trained here")


@torch.no_grad()
def head_of(model: Any) -> Head:
    """The head of a transformers causal LM, by its config. Raises ModelError where its logits are others.

    The model's attention must be its own.
    """
    config = model.config.get_text_config()
    head = Head(
        weight=model.get_output_embeddings().weight,
        cap=getattr(config, "final_logit_softcapping", None),
        scale=(getattr(config, "logit_scale", None) or 1.0)
        / (getattr(config, "logits_scaling", None) or 1.0),
    )
    ids = torch.tensor([[head.weight.shape[0] * part // 9 for part in range(1, 9)]], device=model.device)
    with torch.autocast(model.device.type, dtype=torch.bfloat16, enabled=model.dtype == torch.bfloat16):
        states = body_of(model)(input_ids=ids, use_cache=False).last_hidden_state[0]
        expected = model(input_ids=ids, use_cache=False).logits[0]
    got = logits_of(states.to(head.weight.dtype), head).to(expected.dtype)
    if not agrees(got, expected):
        raise ModelError(
            f"{config.model_type}: its logits are not its head's product with the hidden state, capped or "
            "scaled as its config says, so this model cannot be trained here"
        )
    return head


def logits_of(states: Tensor, head: Head) -> Tensor:
    """float32 [n, V] of [n, d] states in the weight's number format."""
    logits = (states @ head.weight.T).float()
    if head.scale != 1:
        logits *= head.scale
    if head.cap is not None:
        logits = logits.div_(head.cap).tanh_().mul_(head.cap)
    return logits

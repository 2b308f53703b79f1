"""From hidden states to log-probs without ever holding a float32 [T, V] array.

Logits exist only at positions that predict a trained token, and only a chunk of them at a time;
the backward pass recomputes its chunk.
"""

from typing import Any, cast

import torch
from torch import Tensor

CHUNK = 128
TOP_K = 20


class _TargetLogProb(torch.autograd.Function):
    """log softmax(h W^T / temperature)[target], with the gradient for h only: the head is frozen."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, head: Tensor, target: Tensor, temperature: Tensor) -> Tensor:
        ctx.save_for_backward(hidden, head, target, temperature)
        out = torch.empty(target.shape[0], dtype=torch.float32, device=hidden.device)
        for part in _chunks(target.shape[0]):
            logits = _logits(hidden[part], head, temperature[part])
            out[part] = logits.gather(1, target[part, None])[:, 0] - logits.logsumexp(1)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        hidden, head, target, temperature = ctx.saved_tensors
        (grad,) = grads
        grad_hidden = torch.empty_like(hidden)
        for part in _chunks(target.shape[0]):
            minus = torch.softmax(_logits(hidden[part], head, temperature[part]), dim=1).neg_()
            minus.scatter_add_(1, target[part, None], torch.ones_like(target[part, None], dtype=minus.dtype))
            minus *= (grad[part] / temperature[part])[:, None]
            grad_hidden[part] = (minus.to(head.dtype) @ head).to(hidden.dtype)
        return grad_hidden, None, None, None


def target_logprobs(hidden: Tensor, head: Tensor, target: Tensor, temperature: Tensor) -> Tensor:
    """float32 [n] log-probs of `target` [n] given `hidden` [n, d], head weight [V, d], temperature [n] > 0.

    Differentiable in `hidden`. n = 0 gives an empty tensor.
    """
    return cast(Tensor, _TargetLogProb.apply(hidden, head, target, temperature))  # type: ignore[no-untyped-call]


@torch.no_grad()
def read_out(hidden: Tensor, head: Tensor, target: Tensor, temperature: Tensor) -> Tensor:
    """float32 [n, 4]: log-prob of the target, entropy, self-certainty, mean of the top-20 log-probs."""
    out = torch.empty(target.shape[0], 4, dtype=torch.float32, device=hidden.device)
    for part in _chunks(target.shape[0]):
        logp = torch.log_softmax(_logits(hidden[part], head, temperature[part]), dim=1)
        vocabulary = logp.shape[1]
        out[part, 0] = logp.gather(1, target[part, None])[:, 0]
        out[part, 2] = -logp.mean(1) - torch.log(torch.tensor(float(vocabulary)))
        out[part, 3] = logp.topk(min(TOP_K, vocabulary), dim=1).values.mean(1)
        out[part, 1] = -(logp.exp() * logp).sum(1)
    return out


def _logits(hidden: Tensor, head: Tensor, temperature: Tensor) -> Tensor:
    return (hidden @ head.T).float() / temperature[:, None]


def _chunks(count: int) -> list[slice]:
    return [slice(start, start + CHUNK) for start in range(0, count, CHUNK)]

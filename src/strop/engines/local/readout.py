"""From hidden states to log-probs without ever holding a float32 [T, V] array.

Logits exist only at positions that predict a trained token, only a chunk of them at a time, and only
once: what the backward pass needs of them is a vector of the hidden state's size, which is kept.
"""

from typing import Any, cast

import torch
from torch import Tensor

from strop.engines.local.head import Head, logits_of

CHUNK = 128
TOP_K = 20


class _TargetLogProb(torch.autograd.Function):
    """log softmax(logits(h) / temperature)[target], with the gradient for h only: the head is frozen.

    Its second output, the entropy of the softmax, has no gradient.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, head: Head, target: Tensor, temperature: Tensor
    ) -> tuple[Tensor, Tensor]:
        # The gradient of each log-prob, while its logits are at hand; backward only scales it.
        slope = torch.empty_like(hidden) if ctx.needs_input_grad[0] else None
        out = torch.empty(target.shape[0], dtype=torch.float32, device=hidden.device)
        entropy = torch.empty_like(out)
        for part in _chunks(target.shape[0]):
            logits = _logits(hidden[part], head, temperature[part])
            total = logits.logsumexp(1, keepdim=True)
            out[part] = (logits.gather(1, target[part, None]) - total)[:, 0]
            minus = logits.sub_(total).exp().neg_()
            # The batched product has no [n, V] of its own. 0 times a far too unlikely log-prob stays 0.
            entropy[part] = torch.bmm(minus[:, None], logits[:, :, None])[:, 0, 0]
            if slope is not None:
                minus.scatter_add_(1, target[part, None], minus.new_ones((len(minus), 1)))
                minus /= temperature[part, None] / head.scale
                if head.cap is not None:
                    minus *= _steepness(logits.add_(total), temperature[part], head.cap)
                slope[part] = (minus.to(head.weight.dtype) @ head.weight).to(hidden.dtype)
        ctx.save_for_backward(slope)
        ctx.mark_non_differentiable(entropy)
        return out, entropy

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        (slope,) = ctx.saved_tensors
        return (grads[0][:, None] * slope).to(slope.dtype), None, None, None


def target_logprobs(hidden: Tensor, head: Head, target: Tensor, temperature: Tensor) -> tuple[Tensor, Tensor]:
    """float32 [n] log-probs of `target` [n] given `hidden` [n, d], head weight [V, d], temperature [n] > 0.

    And float32 [n], the entropy in nats of the distribution each is from. The log-probs are
    differentiable in `hidden`, the entropy is not. n = 0 gives empty tensors.
    """
    return cast(tuple[Tensor, Tensor], _TargetLogProb.apply(hidden, head, target, temperature))  # type: ignore[no-untyped-call]


@torch.no_grad()
def read_out(hidden: Tensor, head: Head, target: Tensor, temperature: Tensor) -> Tensor:
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


def _logits(hidden: Tensor, head: Head, temperature: Tensor) -> Tensor:
    return logits_of(hidden, head) / temperature[:, None]


def _steepness(logits: Tensor, temperature: Tensor, cap: float) -> Tensor:
    """d(cap · tanh(x / cap)) / dx = 1 - tanh²(x / cap), from the capped logits over temperature."""
    return 1 - (logits * (temperature[:, None] / cap)).square_()


def _chunks(count: int) -> list[slice]:
    return [slice(start, start + CHUNK) for start in range(0, count, CHUNK)]

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

    Its second output, the entropy of the softmax, has no gradient and is there only beside one.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, head: Head, target: Tensor, temperature: Tensor
    ) -> tuple[Tensor, Tensor]:
        # The gradient of each log-prob, while its logits are at hand; backward only scales it.
        slope = torch.empty_like(hidden) if ctx.needs_input_grad[0] else None
        out = torch.empty(target.shape[0], dtype=torch.float32, device=hidden.device)
        entropy = torch.full_like(out, torch.nan)
        cap = None if slope is None else head.cap
        for part in _chunks(target.shape[0]):
            logits = _logits(hidden[part], head, temperature[part])
            steep = None if cap is None else _steepness(logits, temperature[part], cap)
            hit, top = logits.gather(1, target[part, None]), logits.amax(1, keepdim=True)
            fallen = logits.sub_(top)
            likely = fallen.exp_() if steep is None else fallen.exp()
            total = likely.sum(1, keepdim=True)
            log_total = total.log()
            out[part] = (hit - top - log_total)[:, 0]
            if slope is None:
                continue
            likely.div_(total)
            if steep is not None:
                entropy[part] = log_total[:, 0] - torch.linalg.vecdot(likely, fallen)
            slope[part] = _slope(likely, head, target[part], temperature[part], steep)
            if steep is None:
                # Logits that are linear in h are h · slope above their mean under the softmax.
                entropy[part] = (hidden[part].float() * slope[part].float()).sum(1) - out[part]
        ctx.save_for_backward(slope)
        ctx.mark_non_differentiable(entropy)
        return out, entropy

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        (slope,) = ctx.saved_tensors
        return (grads[0][:, None] * slope).to(slope.dtype), None, None, None


def target_logprobs(hidden: Tensor, head: Head, target: Tensor, temperature: Tensor) -> tuple[Tensor, Tensor]:
    """float32 [n] log-probs of `target` [n] given `hidden` [n, d], head weight [V, d], temperature [n] > 0.

    And float32 [n], the entropy in nats of the distribution each is from, where `hidden` wants a gradient
    (nan where not): with a bfloat16 head single ones are 0.1 off, their mean hardly. The log-probs are
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
    return logits_of(hidden, head).div_(temperature[:, None])


def _slope(
    likely: Tensor, head: Head, target: Tensor, temperature: Tensor, steep: Tensor | None = None
) -> Tensor:
    """d log-prob / d hidden, [n, d], from the softmax [n, V], which is overwritten."""
    likely[torch.arange(len(likely), device=target.device), target] -= 1
    if steep is not None:
        likely *= steep
    return (likely.to(head.weight.dtype) @ head.weight) * (-head.scale / temperature[:, None])


def _steepness(logits: Tensor, temperature: Tensor, cap: float) -> Tensor:
    """d(cap · tanh(x / cap)) / dx = 1 - tanh²(x / cap), from the capped logits over temperature."""
    return 1 - (logits * (temperature[:, None] / cap)).square_()


def _chunks(count: int) -> list[slice]:
    return [slice(start, start + CHUNK) for start in range(0, count, CHUNK)]

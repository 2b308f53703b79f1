"""Policy and references at the same tokens: log-probs, the policy's certainty, and KL, in chunks.

Logits exist for one chunk of tokens at a time, of the policy and of one reference beside it.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from strop.engines.local.head import Head, logits_of

CHUNK = 64
TOP_K = 20
POLICY_COLUMNS = 4


@torch.no_grad()
def contrast_out(
    states: Sequence[Tensor], heads: Sequence[Head], target: Tensor, temperature: Tensor
) -> Tensor:
    """float32 [n, 4 + 2 R] of hidden states [n, d] under the policy and each of R references.

    Columns: log-prob of the target, entropy, self-certainty and mean of the top 20 log-probs under the
    policy; then for each reference its log-prob of the target and KL(π ‖ π_ref). A reference whose states
    are the policy's own tensor gets the policy's log-prob and 0. Where vocabularies are padded to
    different sizes, KL is over what both have.
    """
    count = target.shape[0]
    out = torch.zeros(count, POLICY_COLUMNS + 2 * (len(states) - 1), device=target.device)
    for start in range(0, count, CHUNK):
        part = slice(start, start + CHUNK)
        policy = _logp(states[0][part], heads[0], temperature[part])
        likely = policy.exp()
        out[part, :POLICY_COLUMNS] = _certainty(policy, likely, target[part])
        for number, (hidden, head) in enumerate(zip(states[1:], heads[1:], strict=True)):
            column = POLICY_COLUMNS + 2 * number
            if hidden is states[0]:
                out[part, column] = out[part, 0]
                continue
            reference = _logp(hidden[part], head, temperature[part])
            out[part, column] = reference.gather(1, target[part, None])[:, 0]
            out[part, column + 1] = _divergence(policy, likely, reference)
    return out


def _logp(hidden: Tensor, head: Head, temperature: Tensor) -> Tensor:
    logits = logits_of(hidden, head)
    if not torch.all(temperature == 1):
        logits /= temperature[:, None]
    return logits.sub_(logits.logsumexp(1, keepdim=True))


def _certainty(logp: Tensor, likely: Tensor, target: Tensor) -> Tensor:
    vocabulary = logp.shape[1]
    return torch.stack(
        [
            logp.gather(1, target[:, None])[:, 0],
            -torch.linalg.vecdot(likely, logp),
            -logp.mean(1) - torch.log(torch.tensor(float(vocabulary))),
            logp.topk(min(TOP_K, vocabulary), dim=1, sorted=False).values.mean(1),
        ],
        dim=1,
    )


def _divergence(policy: Tensor, likely: Tensor, reference: Tensor) -> Tensor:
    """The reference's log-probs are overwritten."""
    common = min(policy.shape[1], reference.shape[1])
    apart = reference[:, :common].neg_().add_(policy[:, :common])
    divergence: Tensor = torch.linalg.vecdot(likely[:, :common], apart)
    return divergence.clamp_(min=0)

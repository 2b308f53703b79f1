"""Policy and references at the same tokens: log-probs, the policy's certainty, and KL, a block at a time.

Logits exist for a block of tokens and words only, of the policy and of one reference beside it: few enough
to stay in the processor's cache. What is asked of them are sums over words, carried from block to block
relative to the largest logit so far.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from strop.engines.local.head import Head, logits_of

TOKENS = 512
WORDS = 2048
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
    for start in range(0, count, TOKENS):
        part = slice(start, start + TOKENS)
        policy = _Policy(target[part])
        # None where the reference is the policy.
        references = [None if hidden is states[0] else _Reference(target[part]) for hidden in states[1:]]
        for word in range(0, max(len(head.weight) for head in heads), WORDS):
            logits = _logits(states[0][part], heads[0], temperature[part], word)
            likely = policy.add(logits, word)
            for reference, hidden, head in zip(references, states[1:], heads[1:], strict=True):
                if reference is not None:
                    other = _logits(hidden[part], head, temperature[part], word)
                    reference.compare(other, word, policy, logits, likely)
        out[part, :POLICY_COLUMNS] = policy.certainty()
        for column, reference in zip(range(POLICY_COLUMNS, out.shape[1], 2), references, strict=True):
            out[part, column] = (reference or policy).logprob()
            if reference is not None:
                out[part, column + 1] = reference.divergence(policy)
    return out


def _logits(hidden: Tensor, head: Head, temperature: Tensor, word: int) -> Tensor:
    """[n, at most WORDS], of the words from `word` on."""
    logits = logits_of(hidden, replace(head, weight=head.weight[word : word + WORDS]))
    if not torch.all(temperature == 1):
        logits /= temperature[:, None]
    return logits


class _Softmax:
    """Of one model's logits: the largest so far, Σ exp(logit - largest), and the target's; [n] each.

    Of the last block: `fallen`, what the largest had to be raised by, negative, and `fresh`, its part of the
    sum.
    """

    def __init__(self, target: Tensor) -> None:
        self._target = target
        # Not minus infinity: a sum of nothing times a fall from there would be no number.
        self._largest = torch.full(target.shape, torch.finfo(torch.float32).min, device=target.device)
        self.total, self._hit, self.fallen, self.fresh = torch.zeros((4, *target.shape), device=target.device)

    def add(self, logits: Tensor, word: int) -> Tensor:
        """Take in a block, which becomes relative to the largest; exp of that."""
        if not logits.shape[1]:
            self.fallen, self.fresh = torch.zeros_like(self.fallen), torch.zeros_like(self.fresh)
            return logits
        inside = (self._target >= word) & (self._target < word + logits.shape[1])
        at = (self._target - word).clamp(0, logits.shape[1] - 1)[:, None]
        self._hit = torch.where(inside, logits.gather(1, at)[:, 0], self._hit)
        before, self._largest = self._largest, torch.maximum(self._largest, logits.amax(1))
        self.fallen = before - self._largest
        likely = logits.sub_(self._largest[:, None]).exp()
        self.fresh = likely.sum(1)
        self.total = self.total * self.fallen.exp() + self.fresh
        return likely

    def logprob(self) -> Tensor:
        """Of the target."""
        logprob: Tensor = self._hit - self._largest - self.total.log()
        return logprob


class _Policy(_Softmax):
    """Also Σ p · logit, Σ logit and the largest ones, relative to the largest as all is."""

    def __init__(self, target: Tensor) -> None:
        super().__init__(target)
        self._weighed, self._plain = torch.zeros((2, *target.shape), device=target.device)
        self._top, self._words = torch.zeros((len(target), 0), device=target.device), 0

    def add(self, logits: Tensor, word: int) -> Tensor:
        before = self.total
        likely = super().add(logits, word)
        self._weighed = (self._weighed + self.fallen * before) * self.fallen.exp()
        self._weighed += torch.linalg.vecdot(likely, logits)
        self._plain += self.fallen * self._words + logits.sum(1)
        self._words += logits.shape[1]
        some = logits.topk(min(TOP_K, logits.shape[1]), dim=1, sorted=False).values
        some = torch.cat([self._top + self.fallen[:, None], some], 1)
        self._top = some.topk(min(TOP_K, some.shape[1]), dim=1, sorted=False).values
        return likely

    def certainty(self) -> Tensor:
        """[n, 4]: log-prob of the target, entropy, self-certainty, mean of the top log-probs."""
        total = self.total.log()
        uniform = torch.log(torch.tensor(float(self._words)))
        return torch.stack(
            [
                self.logprob(),
                (total - self._weighed / self.total).clamp(min=0),
                total - self._plain / self._words - uniform,
                self._top.mean(1) - total,
            ],
            dim=1,
        )


class _Reference(_Softmax):
    """Also Σ p · (policy's logit - its own) and Σ p, over the words that both have."""

    def __init__(self, target: Tensor) -> None:
        super().__init__(target)
        self._apart, self._common = torch.zeros((2, *target.shape), device=target.device)

    def compare(self, logits: Tensor, word: int, policy: _Softmax, policys: Tensor, likely: Tensor) -> None:
        """Take in a block, beside the policy's relative logits and their exp; overwrites it."""
        self.add(logits, word)
        both = min(logits.shape[1], policys.shape[1])
        apart = logits[:, :both].neg_().add_(policys[:, :both])
        fresh = policy.fresh if both == policys.shape[1] else likely[:, :both].sum(1)
        kept = policy.fallen.exp()
        self._apart = (self._apart + (policy.fallen - self.fallen) * self._common) * kept
        self._apart += torch.linalg.vecdot(likely[:, :both], apart)
        self._common = self._common * kept + fresh

    def divergence(self, policy: _Softmax) -> Tensor:
        """KL(π ‖ π_ref), [n]."""
        shift = (policy.total.log() - self.total.log()) * self._common
        divergence: Tensor = (self._apart - shift) / policy.total
        return divergence.clamp(min=0)

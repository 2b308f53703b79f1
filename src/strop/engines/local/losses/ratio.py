"""Ratios of two policies' probabilities: of a token, of a sequence, and truncated as a weight."""

from collections.abc import Sequence

import torch
from torch import Tensor

MAX_EXPONENT = 20.0


def probability_ratio(logprobs: Tensor, others: Tensor) -> Tensor:
    """p / q from log p and log q, [n]. The exponent is clamped to ±20, where its gradient ends too."""
    return (logprobs - others).clamp(-MAX_EXPONENT, MAX_EXPONENT).exp()


def sequence_ratio(logprobs: Tensor, others: Tensor, lengths: Sequence[int]) -> Tensor:
    """(p / q of the whole sequence) ^ (1 / its length), at each of its tokens, [n]: GSPO (2507.18071).

    The geometric mean of the tokens' ratios, not their product, which would grow with the length. Its
    gradient at a token is the ratio times that of the token's own log-prob (the paper's GSPO-token): a mean
    over the sequence then has the gradient of the sequence's objective, and a weight a token still works.
    `lengths` of the sequences, none of them 0, sum to n. The exponent is clamped to ±20.
    """
    parts = torch.split((logprobs - others).detach(), list(lengths))
    means = torch.stack([part.mean() for part in parts])
    mean = means.repeat_interleave(torch.tensor(lengths, device=logprobs.device))
    return (mean + (logprobs - logprobs.detach())).clamp(-MAX_EXPONENT, MAX_EXPONENT).exp()


def truncated_weight(logprobs: Tensor, others: Tensor, cap: float) -> Tensor:
    """min(p / q, cap), [n], without a gradient: truncated importance sampling."""
    return probability_ratio(logprobs, others).clamp(max=cap).detach()

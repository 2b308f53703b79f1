"""A language model small enough for exact arithmetic: a softmax table over the last tokens. Pure numpy.

Shapes: V vocabulary, K tokens of context, C = (V + 1) ** K contexts, T tokens of a row, S sampled.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from strop.engine import Scored
from strop.trajectory.tokens import Row

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def contexts(ids: Ints, vocab: int, order: int) -> Ints:
    """int64 [T + 1]: which context row predicts position t; the last one predicts what comes next.

    The `order` tokens before t are the digits of a number in base V + 1; V stands for "no token".
    """
    padded = np.concatenate([np.full(order, vocab, dtype=np.int64), ids])
    digits = [padded[k : k + len(ids) + 1] * (vocab + 1) ** (order - 1 - k) for k in range(order)]
    where: Ints = np.sum(digits, axis=0, dtype=np.int64)
    return where


def log_softmax(logits: Floats, temperature: float) -> Floats:
    """Over the last axis. Temperature 0 reads as 1: a greedy draw says nothing of its distribution."""
    scaled = logits / (temperature or 1.0)
    shifted = scaled - scaled.max(axis=-1, keepdims=True)
    result: Floats = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return result


def next_logprobs(logits: Floats, row: Row, order: int) -> tuple[Floats, Ints]:
    """log π(. | before) at the row's sampled positions, [S, V], and the context of each, [S]."""
    where = contexts(row.ids, logits.shape[1], order)[:-1][row.mask]
    return log_softmax(logits[where], row.temperature), where


def read_out(logprobs: Floats, tokens: Ints) -> Scored:
    """All that `Engine.score` reports, from the full distributions [S, V] and the tokens [S]."""
    vocab = logprobs.shape[1]
    top = np.sort(logprobs, axis=1)[:, -min(20, vocab) :]
    return Scored(
        logprobs=np.take_along_axis(logprobs, tokens[:, None], axis=1)[:, 0],
        entropy=entropy(logprobs),
        self_certainty=-logprobs.mean(axis=1) - np.log(vocab),
        topk_logprob=top.mean(axis=1),
    )


def entropy(logprobs: Floats) -> Floats:
    """Of full distributions [S, V], in nats, [S]."""
    total: Floats = -(np.exp(logprobs) * logprobs).sum(axis=1)
    return total


@dataclass(frozen=True, slots=True, kw_only=True)
class Clipped:
    """`loss` and its derivative by the log-prob, `slope`, for each token [S]; `ratio` π_new / π_old;
    `clipped` where the bound is what counts."""

    loss: Floats
    slope: Floats
    ratio: Floats
    clipped: NDArray[np.bool_]


def clipped_loss(new: Floats, old: Floats, advantage: float, clip: float) -> Clipped:
    """PPO's clipped surrogate (arXiv 1707.06347), as GRPO uses it:
    -min(r A, clip(r, 1 - clip, 1 + clip) A) with r = exp(new - old)."""
    ratio = np.exp(new - old)
    free = ratio * advantage
    held = np.clip(ratio, 1 - clip, 1 + clip) * advantage
    slope = np.where(free <= held, -free, 0.0)
    return Clipped(loss=-np.minimum(free, held), slope=slope, ratio=ratio, clipped=free > held)


def row_gradient(logprobs: Floats, tokens: Ints, slope: Floats, temperature: float) -> Floats:
    """d loss / d logits for each sampled token, [S, V]: slope · (onehot - π) / temperature."""
    gradient = -np.exp(logprobs)
    gradient[np.arange(len(tokens)), tokens] += 1.0
    return gradient * (slope / (temperature or 1.0))[:, None]

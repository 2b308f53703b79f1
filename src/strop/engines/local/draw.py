"""Drawing one token a row from logits, and saying how likely it was."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

BLOCK = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """How one row is to be drawn.

    `temperature` 0 takes the most likely token (lowest id on ties). `top_p` keeps the smallest set of
    most likely tokens whose mass reaches it. `uniform` in [0, 1) decides. `top_logprobs` in [0, 20].
    """

    temperature: float
    top_p: float
    uniform: float
    top_logprobs: int = 0


@dataclass(frozen=True, slots=True)
class Drawn:
    """A token, its log-prob, and the most likely tokens of the distribution it was drawn from."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


def draw(logits: Tensor, choices: Sequence[Choice]) -> list[Drawn | None]:
    """One token for each row of [R, V] float32 logits by inverse CDF in id order.

    The distribution is softmax(logits / temperature), cut by `top_p` and normalised again; log-probs are
    of that distribution. At temperature 0 they are of softmax(logits), where a certain choice would say
    nothing. None for a row whose logits are not finite. `logits` may be overwritten.
    """
    if logits.device.type == "mps":  # which has no float64
        logits = logits.cpu()
    scaled = _tempered(logits, [choice.temperature or 1.0 for choice in choices])
    peak, best = scaled.max(dim=-1, keepdim=True)
    mass = scaled.sub_(peak).exp_()
    _cut(mass, [choice.top_p if choice.temperature else 1.0 for choice in choices])
    tokens, totals = _inverse(mass, [choice.uniform for choice in choices])
    greedy = torch.tensor([choice.temperature == 0 for choice in choices], device=mass.device)
    tokens = torch.where(greedy, best[:, 0], tokens)
    logprobs = mass.gather(1, tokens[:, None])[:, 0].double().log() - totals.log()
    usable = torch.isfinite(totals) & torch.isfinite(logprobs)
    tops = _tops(mass, totals, [choice.top_logprobs for choice in choices])
    found = zip(tokens.tolist(), logprobs.tolist(), usable.tolist(), tops, strict=True)
    return [Drawn(token, logprob, top) if fine else None for token, logprob, fine, top in found]


def _tempered(logits: Tensor, temperatures: list[float]) -> Tensor:
    if all(temperature == 1.0 for temperature in temperatures):
        return logits
    return logits.div_(torch.tensor(temperatures, device=logits.device)[:, None])


def _cut(mass: Tensor, limits: list[float]) -> None:
    rows = [row for row, limit in enumerate(limits) if limit < 1.0]
    if not rows:
        return
    ordered, order = mass[rows].sort(dim=-1, descending=True, stable=True)
    share = ordered.double().cumsum(-1) / ordered.double().sum(-1, keepdim=True)
    before = share.roll(1, dims=-1)
    before[:, 0] = 0.0
    wanted = torch.tensor([limits[row] for row in rows], dtype=torch.float64, device=mass.device)
    ordered[(before >= wanted[:, None]) & (before > 0)] = 0.0
    mass[rows] = torch.zeros_like(ordered).scatter_(1, order, ordered)


def _inverse(mass: Tensor, uniforms: list[float]) -> tuple[Tensor, Tensor]:
    """Smallest id whose cumulative mass exceeds uniform x total, in two levels: block, then id in it."""
    rows, size = mass.shape
    blocks = F.pad(mass, (0, -size % BLOCK)).view(rows, -1, BLOCK)
    sums = blocks.sum(-1).double()
    ends = sums.cumsum(-1)
    totals = ends[:, -1:]
    target = torch.tensor(uniforms, dtype=torch.float64, device=mass.device)[:, None] * totals
    block = torch.searchsorted(ends, _below(target, totals), right=True).clamp_(max=ends.shape[1] - 1)
    rest = target - (ends - sums).gather(1, block)
    inside = blocks.gather(1, block[:, :, None].expand(-1, -1, BLOCK))[:, 0].double().cumsum(-1)
    within = torch.searchsorted(inside, _below(rest, inside[:, -1:]), right=True).clamp_(max=BLOCK - 1)
    return (block * BLOCK + within)[:, 0].clamp_(max=size - 1), totals[:, 0]


def _below(target: Tensor, end: Tensor) -> Tensor:
    """Keep a target in [0, end): rounding may put it a hair outside, on an id that carries no mass."""
    return torch.minimum(target.clamp(min=0.0), torch.nextafter(end, torch.zeros_like(end)))


def _tops(mass: Tensor, totals: Tensor, counts: list[int]) -> list[tuple[tuple[int, float], ...]]:
    most = max(counts)
    if most == 0:
        return [()] * len(counts)
    values, tokens = mass.topk(min(most, mass.shape[1]), dim=-1)
    logprobs = (values.double().log() - totals.log()[:, None]).tolist()
    pairs = (zip(*row, strict=True) for row in zip(tokens.tolist(), logprobs, strict=True))
    return [
        tuple((token, value) for token, value in list(row)[:count] if value > float("-inf"))
        for row, count in zip(pairs, counts, strict=True)
    ]

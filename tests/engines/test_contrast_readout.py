"""What is read block by block, beside whole tables of log-probs in float64."""

import numpy as np
import pytest
import torch
from torch import Tensor

from strop.engines.local import contrast_readout as module
from strop.engines.local.contrast_readout import contrast_out
from strop.engines.local.head import Head

WIDTH, COUNT = 8, 11
WORDS = (50, 47, 53)
"""Of the policy, of a reference with fewer words, and of one with more: vocabularies padded differently."""


def drawn(scale: float) -> tuple[list[Tensor], list[Head], Tensor, Tensor]:
    draw = torch.Generator().manual_seed(4)
    states = [torch.randn(COUNT, WIDTH, generator=draw) for _ in WORDS]
    heads = [Head(weight=scale * torch.randn(count, WIDTH, generator=draw)) for count in WORDS]
    target = torch.randint(0, min(WORDS), (COUNT,), generator=draw)
    return states, heads, target, 0.5 + torch.rand(COUNT, generator=draw)


def tables(states: list[Tensor], heads: list[Head], heat: Tensor) -> list[np.ndarray]:
    return [
        torch.log_softmax((h.double() @ head.weight.double().T) / heat.double()[:, None], 1).numpy()
        for h, head in zip(states, heads, strict=True)
    ]


@pytest.mark.parametrize("words", [1, 16, 50, 2048])
@pytest.mark.parametrize("scale", [0.3, 30.0])
def test_every_column_beside_whole_tables(words: int, scale: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WORDS", words)
    monkeypatch.setattr(module, "TOKENS", 4)
    states, heads, target, heat = drawn(scale)
    got = contrast_out(states, heads, target, heat).double().numpy()
    policy, *others = tables(states, heads, heat)
    at, p = (np.arange(COUNT), target.numpy()), np.exp(policy)
    columns = [
        policy[at],
        -(p * policy).sum(1),
        -policy.mean(1) - np.log(WORDS[0]),
        np.sort(policy, 1)[:, -20:].mean(1),
    ]
    for other in others:
        both = min(policy.shape[1], other.shape[1])
        kl = (p[:, :both] * (policy[:, :both] - other[:, :both])).sum(1)
        columns += [other[at], np.maximum(kl, 0)]
    np.testing.assert_allclose(got, np.stack(columns, 1), rtol=5e-5, atol=2e-5)


def test_equal_states_in_tensors_of_their_own_are_exactly_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WORDS", 16)
    (states, *_), (head, *_), target, heat = drawn(3.0)
    got = contrast_out([states, states.clone(), states], [head] * 3, target, heat)
    np.testing.assert_array_equal(got[:, 4], got[:, 0])
    np.testing.assert_array_equal(got[:, 6], got[:, 0])
    np.testing.assert_array_equal(got[:, [5, 7]], np.zeros((COUNT, 2)))


def test_no_token_is_no_row() -> None:
    states, heads, target, heat = drawn(1.0)
    nothing = [each[:0] for each in states]
    assert contrast_out(nothing, heads, target[:0], heat[:0]).shape == (0, 8)

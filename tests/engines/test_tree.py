"""Tree packing against brute force, and against transformers run on each row alone."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from local_model import SIZES, make_row, transformers_logits
from strop.engines.local import tree_attention
from strop.engines.local.learner import Learner, LearnerSettings
from strop.engines.local.tree import Pack, pack
from strop.engines.local.weights import LoraShape, adapted, adapter_tensors
from strop.trajectory.tokens import Row

pytestmark = pytest.mark.usefixtures("one_thread")

FAMILIES: dict[str, Callable[[], Any]] = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SIZES)),
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**SIZES)),
    "sliding": lambda: MistralForCausalLM(MistralConfig(**SIZES, sliding_window=3)),
    "mixed": lambda: Qwen2ForCausalLM(
        Qwen2Config(**SIZES, use_sliding_window=True, sliding_window=3, max_window_layers=1)
    ),
}


@st.composite
def some_rows(draw: st.DrawFn) -> list[Row]:
    """Rows over two or three tokens, so that prefixes are shared, nested and repeated."""
    rows = []
    for number in range(draw(st.integers(1, 8))):
        ids = draw(st.lists(st.integers(0, 2), min_size=2, max_size=9))
        mask = [False, *draw(st.lists(st.booleans(), min_size=len(ids) - 1, max_size=len(ids) - 1))]
        rows.append(make_row(ids, mask, name=f"r{number}"))
    return rows


def prefixes(rows: Sequence[Row]) -> set[tuple[int, ...]]:
    return {tuple(row.ids[: n + 1].tolist()) for row in rows for n in range(len(row.ids))}


def path(packed: Pack, node: int) -> list[int]:
    """Tokens of the nodes that a node sees, in the order of their positions."""
    seen = np.flatnonzero(packed.visible()[node])
    ordered = seen[np.argsort(packed.positions[seen])]
    assert packed.positions[ordered].tolist() == list(range(len(ordered)))
    return packed.ids[ordered].tolist()  # type: ignore[no-any-return]


@given(some_rows())
@settings(max_examples=60, deadline=None)
def test_one_node_for_each_distinct_prefix(rows: list[Row]) -> None:
    trained = [row for row in rows if row.mask.any()]
    packs = pack(rows, 10_000)
    assert sum(len(p.ids) for p in packs) == len(prefixes(trained))
    assert len(packs) == min(1, len(trained))


@given(some_rows(), st.integers(1, 14))
@settings(max_examples=60, deadline=None)
def test_every_sampled_token_is_predicted_by_its_own_prefix(rows: list[Row], max_tokens: int) -> None:
    packs = pack(rows, max_tokens)
    assert [i for p in packs for i in p.rows] == [i for i, row in enumerate(rows) if row.mask.any()]
    for packed in packs:
        members = [rows[i] for i in packed.rows]
        assert len(packed.ids) == len(prefixes(members))
        assert len(packed.ids) <= max_tokens or len(members) == 1
        for row, predictor, target in zip(members, packed.predictor, packed.target, strict=True):
            where = np.flatnonzero(row.mask)
            assert target.tolist() == row.ids[where].tolist()
            assert [path(packed, n) for n in predictor] == [row.ids[:w].tolist() for w in where]


@given(some_rows(), st.integers(1, 14))
@settings(max_examples=40, deadline=None)
def test_a_pack_is_closed_only_where_the_next_row_does_not_fit(rows: list[Row], max_tokens: int) -> None:
    packs = pack(rows, max_tokens)
    for packed, following in pairwise(packs):
        grown = prefixes([rows[i] for i in (*packed.rows, following.rows[0])])
        assert len(grown) > max_tokens


def test_a_known_tree() -> None:
    """1 2 3 4, 1 2 5 and 1 2 3: five nodes; 5 sees 1 and 2, not 3 and 4."""
    rows = [
        make_row([1, 2, 3, 4], [0, 0, 1, 1]),
        make_row([1, 2, 5], [0, 0, 1]),
        make_row([1, 2, 3], [0, 0, 1]),
    ]
    (packed,) = pack(rows, 100)
    assert packed.ids.tolist() == [1, 2, 3, 4, 5]
    assert packed.positions.tolist() == [0, 1, 2, 3, 2]
    assert packed.visible().astype(int).tolist() == [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [1, 1, 1, 0, 0],
        [1, 1, 1, 1, 0],
        [1, 1, 0, 0, 1],
    ]
    assert [p.tolist() for p in packed.predictor] == [[1, 2], [1], [1]]
    assert [t.tolist() for t in packed.target] == [[3, 4], [5], [3]]


def test_nothing_to_predict_is_nothing_to_compute() -> None:
    assert pack([], 10) == []
    assert pack([make_row([1, 2, 3], [0, 0, 0]), make_row([], [])], 10) == []


def test_a_sampled_token_without_a_prompt_is_refused() -> None:
    with pytest.raises(AssertionError, match="needs a token before it"):
        pack([make_row([1, 2], [1, 1])], 10)


STEM = [5, 9, 2, 7, 7, 1]
ROWS = [
    make_row([*STEM, 3, 4, 8, 6, 11], [0] * 6 + [1, 1, 0, 1, 1]),
    make_row([*STEM, 3, 4, 9, 9, 12, 13], [0] * 6 + [1, 1, 0, 0, 1, 1]),
    make_row([*STEM, 3, 4, 8, 6, 11], [0] * 6 + [1, 1, 0, 1, 1]),
    make_row([*STEM, 3], [0] * 6 + [1]),
    make_row([20, 21, 22, 23], [0, 1, 1, 1], temperature=0.7),
    make_row([*STEM, 3, 4, 8, 6, 11], [0] * 6 + [1, 1, 0, 1, 1], temperature=0.7),
]
WEIGHTS = [1.0, -0.7, 0.4, 2.0, -1.3, 0.9]


def learner(family: str, max_tokens: int) -> Learner:
    torch.manual_seed(3)
    model = adapted(FAMILIES[family]().eval().requires_grad_(False), LoraShape(rank=4), None, seed=1)
    with torch.no_grad():
        for parameter in adapter_tensors(model, "policy").values():
            parameter.add_(0.05 * torch.randn(parameter.shape))
    return Learner(model, LearnerSettings(micro_batch_tokens=max_tokens))


def alone(own: Learner, row: Row) -> Tensor:
    """The row through transformers' own forward, causal mask and all."""
    logits = transformers_logits(own.model, row.ids.tolist()) / row.temperature
    logp = torch.log_softmax(logits, dim=-1)
    where = np.flatnonzero(row.mask)
    return logp[where - 1, row.ids[where]]


def gradients(own: Learner) -> Tensor:
    return torch.cat([p.grad.flatten() for p in own.parameters if p.grad is not None])


@pytest.mark.parametrize("max_tokens", [1000, 20, 12, 3])
@pytest.mark.parametrize("family", ["llama", "qwen2"])
def test_packed_is_unpacked(family: str, max_tokens: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Log-probs and gradients, with duplicates, nested rows, split packs and rows too long for a pack."""
    monkeypatch.setattr("strop.engines.local.learner.SCORED_TOKENS", 1)
    check_packed_is_unpacked(learner(family, max_tokens))


@pytest.mark.parametrize("family", ["sliding", "mixed"])
def test_a_window_is_counted_along_the_row(family: str) -> None:
    """Layers that see the last three tokens only: of the row, not of the pack."""
    own = learner(family, 1000)
    assert own.model.get_base_model().config.sliding_window == 3
    check_packed_is_unpacked(own)


@pytest.mark.parametrize("family", list(FAMILIES))
def test_a_model_that_takes_masks_only_gets_a_mask(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_attention, "install", lambda model: False)
    own = learner(family, 1000)
    assert own.model.get_base_model().config._attn_implementation == "sdpa"
    check_packed_is_unpacked(own)


def test_attention_that_branches_cannot_do_is_left_to_the_model() -> None:
    """Gemma 2 caps its attention scores; GPT-OSS has sinks: both arrive as arguments."""
    small = {**SIZES, "head_dim": 16, "query_pre_attn_scalar": 16, "attn_logit_softcapping": 50.0}
    model = Gemma2ForCausalLM(Gemma2Config(**small))
    before = model.config._attn_implementation
    assert not tree_attention.install(model)
    assert model.config._attn_implementation == before


def check_packed_is_unpacked(own: Learner) -> None:
    for row, got in zip(ROWS, own.score(ROWS, "policy"), strict=True):
        expected = alone(own, row).detach().double().numpy()
        np.testing.assert_allclose(got.logprobs, expected, rtol=0, atol=1e-5)
    own.accumulate(ROWS, WEIGHTS, "supervised")
    packed = gradients(own)
    own.forget()
    torch.stack([-w * alone(own, row).sum() for w, row in zip(WEIGHTS, ROWS, strict=True)]).sum().backward()
    plain = gradients(own)
    assert len(plain) == len(packed) > 0
    assert float((packed - plain).norm() / plain.norm()) < 1e-4

"""The tree for FlexAttention against the dense mask. On CUDA it is compiled; here only its masks are run."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.attention.flex_attention import flex_attention

from local_model import make_row
from strop.engines.local.flex import block_mask, intervals, mask_mod
from strop.engines.local.tree import Pack, pack

CPU = torch.device("cpu")


@st.composite
def some_pack(draw: st.DrawFn) -> Pack:
    """Rows over three tokens, so that prefixes are shared, nested and repeated."""
    rows = draw(st.lists(st.lists(st.integers(0, 2), min_size=2, max_size=9), min_size=1, max_size=8))
    (packed,) = pack([make_row(ids, [0] + [1] * (len(ids) - 1)) for ids in rows], 10_000)
    return packed


def dense(packed: Pack, window: int | None) -> np.ndarray:
    """Whether a node sees another, by the dense mask and the distance along the row."""
    near = packed.positions[:, None] - packed.positions[None, :] < (window or len(packed.ids))
    return packed.visible() & near


@given(some_pack(), st.sampled_from([None, 1, 2, 4]))
@settings(max_examples=80, deadline=None)
def test_the_mask_function_is_the_dense_mask(packed: Pack, window: int | None) -> None:
    sees = mask_mod(packed, window, CPU)
    nodes = torch.arange(len(packed.ids))
    zero = torch.zeros((), dtype=torch.int64)
    got = sees(zero, zero, nodes[:, None], nodes[None, :])
    np.testing.assert_array_equal(got.numpy(), dense(packed, window))


def test_intervals_of_a_known_tree() -> None:
    """1 2 3 4 and 1 2 5, then 6 7: nodes 0 1 2 3, 4 below 1, and 5 6 apart."""
    rows = [make_row([1, 2, 3, 4], [0, 0, 1, 1]), make_row([1, 2, 5], [0, 0, 1]), make_row([6, 7], [0, 1])]
    (packed,) = pack(rows, 100)
    enter, leave = intervals(packed)
    assert enter.tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert leave.tolist() == [5, 5, 4, 4, 5, 7, 7]


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("window", [None, 40])
def test_flex_attention_with_the_block_mask_is_attention_with_the_dense_one(window: int | None) -> None:
    """Over several blocks of 128, of which some are skipped whole."""
    generator = np.random.default_rng(0)
    stem = generator.integers(0, 50, 150).tolist()
    rows = [
        make_row([*stem, *generator.integers(0, 50, 90).tolist()], [0] * 150 + [1] * 90) for _ in range(3)
    ]
    (packed,) = pack(rows, 10_000)
    torch.manual_seed(0)
    query, key, value = (torch.randn(1, 2, len(packed.ids), 16) for _ in range(3))
    blocks = block_mask(packed, window, CPU)
    assert blocks.sparsity() > 0
    got = flex_attention(query, key, value, block_mask=blocks)
    seen = torch.from_numpy(dense(packed, window))
    expected = torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=seen)
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)

"""Packed rows against transformers run on each row alone, for many architectures."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from families import EVERY, MASKED, PACKED, TARGETS, WINDOW, family
from local_model import make_row, transformers_logits
from strop.engines.local import tree_attention
from strop.engines.local.attention import UnsupportedAttention
from strop.engines.local.head import head_of
from strop.engines.local.learner import Learner, LearnerSettings
from strop.engines.local.reading import Reader
from strop.engines.local.tree import pack
from strop.engines.local.weights import LoraShape, adapted, adapter_tensors
from strop.errors import ModelError
from strop.trajectory.tokens import Row

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings("ignore:.*rows are read one by one:RuntimeWarning"),
]

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


def learner(name: str, max_tokens: int = 1000, **settings: Any) -> Learner:
    shape = LoraShape(rank=4, targets=TARGETS.get(name, "all-linear"))
    model = adapted(family(name), shape, None, seed=1)
    with torch.no_grad():
        for parameter in adapter_tensors(model, "policy").values():
            parameter.add_(0.05 * torch.randn(parameter.shape))
    return Learner(model, LearnerSettings(micro_batch_tokens=max_tokens, **settings))


def alone(own: Learner, row: Row) -> Tensor:
    """The row through transformers' own forward, causal mask and all."""
    logits = transformers_logits(own.model, row.ids.tolist()) / row.temperature
    logp = torch.log_softmax(logits, dim=-1)
    where = np.flatnonzero(row.mask)
    return logp[where - 1, row.ids[where]]


def gradients(own: Learner) -> Tensor:
    return torch.cat([p.grad.flatten() for p in own.parameters if p.grad is not None])


def check_packed_is_unpacked(own: Learner) -> None:
    for row, got in zip(ROWS, own.score(ROWS, "policy"), strict=True):
        expected = alone(own, row).detach().double().numpy()
        np.testing.assert_allclose(got.logprobs, expected, rtol=0, atol=2e-5)
    own.accumulate(ROWS, WEIGHTS, "supervised")
    packed = gradients(own)
    own.forget()
    torch.stack([-w * alone(own, row).sum() for w, row in zip(WEIGHTS, ROWS, strict=True)]).sum().backward()
    plain = gradients(own)
    assert len(plain) == len(packed) > 0
    assert float((packed - plain).norm() / plain.norm()) < 1e-4


@pytest.mark.parametrize("max_tokens", [20, 12, 3])
@pytest.mark.parametrize("name", ["llama", "gemma2"])
def test_split_packs_are_unpacked_rows(name: str, max_tokens: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Log-probs and gradients, with duplicates, nested rows, split packs and rows too long for a pack."""
    monkeypatch.setattr("strop.engines.local.learner.SCORED_TOKENS", 1)
    check_packed_is_unpacked(learner(name, max_tokens))


@pytest.mark.parametrize("name", list(EVERY))
def test_packed_is_unpacked(name: str) -> None:
    """Whatever the way in which the model is read; windows are counted along the row, not the pack."""
    own = learner(name)
    way = own._reader.way
    assert way == ("branches" if name in PACKED else "masks" if name in MASKED else "rows")
    assert (own.note is None) == (way != "rows")
    check_packed_is_unpacked(own)


@pytest.mark.parametrize("name", ["llama", "qwen2", "sliding", "mixed", "gemma2", "gemma3"])
def test_a_model_that_takes_masks_only_gets_a_mask(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(model: Any) -> None:
        raise UnsupportedAttention("more than there is")

    monkeypatch.setattr(tree_attention, "install", refuse)
    own = learner(name)
    assert own._reader.way == "masks"
    assert own.model.get_base_model().config._attn_implementation in ("sdpa", "eager")
    check_packed_is_unpacked(own)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("mamba", "it has linear_attention layers"),
        ("lfm2", "it has conv layers"),
        ("llama4", "it has chunked_attention layers"),
        ("bloom", "an attention that cannot be chosen"),
    ],
)
def test_a_model_that_cannot_read_trees_says_why(name: str, reason: str) -> None:
    with pytest.warns(RuntimeWarning, match="rows are read one by one"):
        own = learner(name)
    assert own.note is not None
    assert reason in own.note


def test_a_layer_that_no_config_names_is_found_by_what_it_does() -> None:
    """A running mean over all tokens before, in the order in which they lie: a neighbour's too."""
    model = family("llama")
    hook = model.model.layers[0].register_forward_hook(
        lambda _module, _given, out: out + out.cumsum(1) / torch.arange(1, out.shape[1] + 1)[:, None]
    )
    reader = Reader(model)
    hook.remove()
    assert reader.way == "rows"
    assert reader.note is not None
    assert "of their length from those of the rows alone" in reader.note


def test_a_window_that_attention_is_not_told_of_is_left_to_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a model that says in its mask only how far back a layer sees."""
    whole = tree_attention.tree_attention

    def blind(*args: Any, sliding_window: int | None = None, **asked: Any) -> Any:
        assert sliding_window == WINDOW
        return whole(*args, **asked)

    monkeypatch.setattr(tree_attention, "tree_attention", blind)
    own = learner("sliding")
    assert own._reader.way == "masks"
    check_packed_is_unpacked(own)


def test_logits_that_are_not_the_heads_product_are_refused() -> None:
    model = family("llama")
    model.lm_head.bias = torch.nn.Parameter(torch.linspace(-3, 3, 64), requires_grad=False)
    with pytest.raises(ModelError, match="llama: its logits are not its head's product"):
        head_of(model)


def test_rows_read_one_by_one_keep_their_numbers() -> None:
    reader = Reader(family("mamba"))
    silent = make_row([8, 8, 8], [0, 0, 0])
    assert [packed.rows for packed in reader.packs([ROWS[0], silent, ROWS[0]], 4)] == [(0,), (2,)]
    assert len(pack([ROWS[0], silent, ROWS[0]], 100)) == 1

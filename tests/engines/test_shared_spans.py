"""What several rows hold alike is read once for all of them, and gives what each would read by itself."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lean_families import FAMILIES
from strop.engines.local import attention
from strop.engines.local.attention import Placement, Scores
from strop.engines.local.decoder import Piece, SlotDecoder
from strop.engines.local.slots import CHUNK, Bank, CacheShape, Slot, Span, shared_spans

A, B, C, D = ([letter] * CHUNK for letter in range(4))
Lists = Sequence[Sequence[int]]


def spans(lists: Lists, most: int = 99) -> list[Span]:
    return shared_spans([Slot(number=n, ids=list(ids)) for n, ids in enumerate(lists)], most)


@pytest.mark.parametrize(
    ("lists", "expected"),
    [
        ([A], []),
        # Two rows save a chunk, and cost the copy of one and four operations.
        ([A, A], []),
        # Seven saved for five.
        ([A] * 8, [Span(0, 1, (tuple(range(8)),))]),
        # Whole chunks only: the shortest row ends in its first.
        ([*[A] * 8, A[:-1]], []),
        ([[*A, 9], *[A + B] * 7], [Span(0, 1, (tuple(range(8)),))]),
        # Two groups, one system prompt.
        (
            [A + B + C + D] * 6 + [A + D + D + C] * 6,
            [Span(0, 1, (tuple(range(12)),)), Span(1, 4, (tuple(range(6)), tuple(range(6, 12))))],
        ),
        # The same chunk behind another one is not the same prefix.
        ([A + C] * 8 + [B + C] * 8, [Span(0, 2, (tuple(range(8)), tuple(range(8, 16))))]),
        # Rows of a class need not lie together.
        ([A + A + A, B + B + B] * 7, [Span(0, 3, (tuple(range(0, 14, 2)), tuple(range(1, 14, 2))))]),
    ],
)
def test_spans_by_hand(lists: Lists, expected: list[Span]) -> None:
    assert spans(lists) == expected


def test_a_device_reads_for_all_rows_or_none() -> None:
    lists = [A + B + C + D] * 6 + [A + D + D + C] * 6
    assert spans(lists, most=1) == [Span(0, 1, (tuple(range(12)),))]
    assert spans([B, *lists], most=1) == []


@given(st.lists(st.lists(st.sampled_from((0, 1)), min_size=1, max_size=4), min_size=1, max_size=24))
def test_every_class_holds_the_same_tokens_and_every_row_is_in_one(chosen: list[list[int]]) -> None:
    lists = [[token for kind in kinds for token in [kind] * CHUNK] for kinds in chosen]
    at = 0
    for span in spans(lists):
        assert span.start == at < span.stop
        at = span.stop
        assert sorted(row for rows in span.classes for row in rows) == list(range(len(lists)))
        for rows in span.classes:
            assert len({tuple(lists[row][: at * CHUNK]) for row in rows}) == 1


LAYOUTS = {
    "one larger than the other": [A + B + C, A + D + D, A + B + C] * 8,
    "of one size, in turns": [A + B + C, A + D + D] * 12,
    "of one size, as neighbours": [A + B + C] * 12 + [A + D + D] * 12,
}


@torch.inference_mode()
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("cap", [None, 5.0])
@pytest.mark.parametrize("window", [None, 100])
def test_attention_read_together_is_that_read_row_by_row(
    window: int | None, cap: float | None, layout: str
) -> None:
    """Keys and values are alike where the tokens are, and else drawn anew: a row read for another is seen."""
    torch.manual_seed(0)
    shape = CacheShape(layers=1, kv_heads=2, head_dim=8, dtype=torch.float64, device=torch.device("cpu"))
    bank, lists = Bank(shape, 24), LAYOUTS[layout]
    for number, ids in enumerate(lists):
        taken = bank.take(ids, str(number))
        assert taken is not None
        taken.ids = list(ids)
    bank.reserve(4 * CHUNK)
    first: dict[tuple[int, ...], int] = {}
    for chunks in (bank.layers[0].keys, bank.layers[0].values):
        for number, chunk in enumerate(chunks):
            chunk.normal_()
            for row, ids in enumerate(lists):
                chunk[row] = chunk[first.setdefault(tuple(ids[: (number + 1) * CHUNK]), row)]
    query, key, value = (torch.randn(24, heads, 1, 8, dtype=torch.float64) for heads in (6, 2, 2))
    together = shared_spans(bank.slots, 24)
    assert [len(span.classes) for span in together] == [1, 2]

    def attended(shared: Sequence[Span]) -> Any:
        placement = Placement(
            layers=bank.layers,
            slots=list(range(24)),
            starts=[3 * CHUNK] * 24,
            length=1,
            device=torch.device("cpu"),
            shared=shared,
        )
        scores = Scores(0.4, cap)
        return attention.attend(0, query, key, value, placement, scores=scores, window=window)

    assert torch.allclose(attended(together), attended(()), atol=1e-12)


@torch.inference_mode()
@pytest.mark.parametrize("family", ["llama", "sliding"])
def test_groups_after_prompts_of_their_own_equal_a_fresh_forward_pass(family: str) -> None:
    """Three groups under one system prompt, at different lengths, some with guesses, in two halves."""
    torch.manual_seed(3)
    model = FAMILIES[family]().eval()
    twin = FAMILIES[family]().eval()
    twin.load_state_dict(model.state_dict())
    decoder = SlotDecoder(model)
    decoder.quicken()
    system, *own = (torch.randint(0, 96, (size,)).tolist() for size in (70, 150, 200, 170))
    prompts = [system + own[n % 3] + torch.randint(0, 96, (1 + n,)).tolist() for n in range(30)]
    bank = decoder.bank(30)
    slots = [bank.take(prompt, str(number)) for number, prompt in enumerate(prompts)]
    decoder.fill(bank, [Piece(s, p[:-1]) for s, p in zip(slots, prompts, strict=True) if s])
    assert [len(span.classes) for span in decoder._shared([Piece(s, [1]) for s in slots if s])] == [1, 3]
    unread = [[prompt[-1], *([5, 6] if number % 4 == 0 else [])] for number, prompt in enumerate(prompts)]
    logits = torch.cat(list(decoder.step(bank, [s for s in slots if s], unread)))
    for prompt, read in zip(prompts, unread, strict=True):
        mine, logits = logits.split([len(read), len(logits) - len(read)])
        expected = twin(torch.tensor([prompt + read[1:]])).logits[0, len(prompt) - 1 :]
        assert torch.allclose(mine, expected, atol=1e-4)

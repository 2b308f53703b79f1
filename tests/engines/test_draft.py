"""Drafts: by hand, and speculation against plain decoding of the same requests."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from local_model import SIZES
from strop.engines.local import draft
from strop.engines.local.attention import SHORT
from strop.engines.local.decoder import SlotDecoder
from strop.engines.local.draft import Echo, Habit
from strop.engines.local.sampler import LocalSampler
from strop.inference.sampling import Sampled, SamplingParams

pytestmark = pytest.mark.usefixtures("one_thread")


def said(habit: Habit, echo: Echo, ids: Sequence[int]) -> None:
    for token in ids:
        habit.learn(echo, token)
        echo.extend([token])


COUNT = list(range(1, 11))


def test_own_text_is_believed_once_it_was_right() -> None:
    habit, echo = Habit(), Echo(COUNT + COUNT[:8])
    # A match of 8 tokens starts at 0.3 of 1 case, too little; right once, it is 1.3 of 2.
    assert habit.draft(echo, 4) == []
    said(habit, echo, [9])
    # 0.65 for the 10; with the 1 behind it 0.65 * 0.65 = 0.42, which is not likely any more.
    assert habit.draft(echo, 4) == [10]


def test_own_text_is_not_believed_where_it_was_wrong() -> None:
    habit = Habit()
    elsewhere = list(range(60, 80))
    said(habit, Echo(elsewhere * 2), elsewhere * 2)
    assert habit.draft(Echo(COUNT + COUNT[:8]), 1) == [9]
    for other in (21, 22, 23):
        said(habit, Echo(COUNT + COUNT[:8]), [other])
    # Such matches are right in 40.3 of 44 cases elsewhere; here (0 + 2 * 0.92) / (3 + 2) = 0.37.
    assert habit.draft(Echo(COUNT + COUNT[:8]), 1) == []


def test_nothing_is_guessed_after_what_was_never_seen() -> None:
    assert Habit().draft(Echo([1, 2, 3, 4, 5, 6]), 4) == []
    assert Habit().draft(Echo([1]), 4) == []


def test_the_cohort_teaches_its_frame_and_stops_where_it_forks() -> None:
    habit = Habit()
    for name in (50, 60):
        said(habit, Echo([1, 2, 3, 4]), [10, 11, 12, 13, name])
    # 2 of 2.3 each: 0.57 after four of them; each name is 1 of 2.3.
    assert habit.draft(Echo([1, 2, 3, 4]), 9) == [10, 11, 12, 13]


def test_no_draft_is_longer_than_asked_or_than_a_pass_takes() -> None:
    habit = Habit()
    for _ in range(40):
        said(habit, Echo([1, 2, 3, 4]), list(range(20, 50)))
    assert habit.draft(Echo([1, 2, 3, 4]), 3) == [20, 21, 22]
    assert habit.draft(Echo([1, 2, 3, 4]), 0) == []
    assert len(habit.draft(Echo([1, 2, 3, 4]), 99)) == draft.LONGEST
    # The last token said is read with its draft, and longer rows are read as prompts are.
    assert draft.LONGEST + 1 <= SHORT


def decoded(sampler: LocalSampler, temperature: float) -> list[Sampled]:
    async def all_at_once() -> list[Sampled]:
        params = [
            SamplingParams(max_tokens=60, temperature=temperature, seed=seed, top_logprobs=2, stop=("zz",))
            for seed in range(6)
        ]
        prompts = [[5, 6, 7, 8 + seed % 3] * 4 for seed in range(6)]
        pairs = zip(prompts, params, strict=True)
        return list(await asyncio.gather(*(sampler.sample(p, q, model="m") for p, q in pairs)))

    return asyncio.run(all_at_once())


@pytest.mark.parametrize("temperature", [0.0, 0.1])
def test_speculation_changes_nothing_but_how_often_the_model_is_asked(
    temperature: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes: list[int] = []
    step = SlotDecoder.step

    def counted(self: SlotDecoder, bank: Any, slots: Any, rows: Any) -> Iterator[Tensor]:
        passes.extend(len(row) for row in rows)
        return step(self, bank, slots, rows)

    monkeypatch.setattr(SlotDecoder, "step", counted)

    def run() -> tuple[list[Sampled], int]:
        torch.manual_seed(0)
        config = LlamaConfig(**{**SIZES, "vocab_size": 96, "initializer_range": 0.2})
        sampler = LocalSampler("cpu", slots=8, max_length=256)
        names = "".join(chr(97 + n % 26) for n in range(96))
        sampler.serve(
            "m", 1, LlamaForCausalLM(config).eval(), eos_ids=frozenset({3}),
            decode=lambda ids: "".join(names[i] for i in ids),
        )  # fmt: skip
        passes.clear()
        result = decoded(sampler, temperature)
        sampler.close()
        return result, len(passes)

    guessed, quick = run()
    assert max(passes) > 1
    monkeypatch.setattr(draft, "LONGEST", 0)
    plain, slow = run()
    assert [(s.ids, s.finish_reason) for s in guessed] == [(s.ids, s.finish_reason) for s in plain]
    for one, other in zip(guessed, plain, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)
    assert quick < slow


@pytest.mark.parametrize(("together", "guessing", "read"), [(20, 9, 0), (20, 10, 10), (16, 1, 1), (17, 1, 0)])
def test_in_a_crowd_guesses_are_read_where_half_have_some(
    together: int, guessing: int, read: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Conversations are told apart by the first token of their prompts; the first step has them all."""
    steps: list[list[int]] = []
    step = SlotDecoder.step

    def noted(self: SlotDecoder, bank: Any, slots: Any, rows: Any) -> Iterator[Tensor]:
        steps.append([len(row) for row in rows])
        return step(self, bank, slots, rows)

    def guess(_: Habit, echo: Echo, longest: int) -> list[int]:
        return [7][:longest] if echo.ids[0] < guessing else []

    monkeypatch.setattr(SlotDecoder, "step", noted)
    monkeypatch.setattr(Habit, "draft", guess)
    sampler = LocalSampler("cpu", slots=together, max_length=64)
    model = LlamaForCausalLM(LlamaConfig(**{**SIZES, "vocab_size": 96})).eval()
    sampler.serve("m", 1, model, eos_ids=frozenset(), decode=str)

    async def cohort() -> None:
        sampler.open([str(number) for number in range(together)])
        params = SamplingParams(max_tokens=3)
        asked = [
            sampler.sample([number, 5, 6], params, model="m", session=str(number))
            for number in range(together)
        ]
        await asyncio.gather(*asked)

    asyncio.run(cohort())
    sampler.close()
    assert sorted(steps[0]) == [1] * (together - read) + [2] * read

"""The local sampler against transformers itself: same tokens, same log-probs, whatever is batched."""

import asyncio
import gc
import random
import threading
import weakref
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from strop.engines.local.decoder import SlotDecoder
from strop.engines.local.sampler import LocalSampler
from strop.errors import EngineError, InputError
from strop.inference.sampling import Sampled, SamplingParams

VOCAB = 96
SIZES = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "initializer_range": 0.2,
}
FAMILIES: dict[str, Callable[[], Any]] = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SIZES)),
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**SIZES)),
    "sliding": lambda: MistralForCausalLM(MistralConfig(**SIZES, sliding_window=7)),
}


def make(family: str = "llama", seed: int = 0) -> Any:
    torch.manual_seed(seed)
    return FAMILIES[family]().eval()


def text(ids: Sequence[int]) -> str:
    """Each id as two letters, so that stop strings may cross tokens."""
    return "".join(chr(97 + i // 10) + chr(97 + i % 10) for i in ids)


def start(model: Any, *, slots: int = 8, eos: frozenset[int] = frozenset(), **options: Any) -> LocalSampler:
    sampler = LocalSampler("cpu", slots=slots, max_length=256, **options)
    sampler.serve("m@1", 1, model, eos_ids=eos, decode=text)
    sampler.route("policy", "m@1")
    return sampler


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Models this small only lose by a second thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def sampler() -> Iterator[LocalSampler]:
    made = start(make())
    yield made
    made.close()


def prompt(length: int, seed: int) -> list[int]:
    return random.Random(seed).choices(range(1, VOCAB), k=length)


def full_logprobs(model: Any, ids: Sequence[int], sampled: int, temperature: float = 1.0) -> torch.Tensor:
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([list(ids)])).logits[0, -sampled - 1 : -1]
    chosen = torch.tensor(list(ids)[-sampled:])
    return (logits / temperature).log_softmax(-1).gather(1, chosen[:, None])[:, 0]


async def together(*calls: Awaitable[Sampled]) -> list[Sampled]:
    return list(await asyncio.gather(*calls))


@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_equals_generate_for_prompts_of_all_lengths_at_once(family: str) -> None:
    sampler, twin = start(make(family)), make(family)
    prompts = [prompt(length, seed=length) for length in (1, 2, 9, 33, 150)]
    greedy = SamplingParams(max_tokens=24, temperature=0.0)
    found = asyncio.run(together(*(sampler.sample(p, greedy, model="policy") for p in prompts)))
    sampler.close()
    for ids, got in zip(prompts, found, strict=True):
        expected = twin.generate(
            torch.tensor([ids]),
            attention_mask=torch.ones(1, len(ids), dtype=torch.long),
            max_new_tokens=24,
            do_sample=False,
            pad_token_id=0,
            eos_token_id=None,
        )
        assert list(got.ids) == expected[0, len(ids) :].tolist()
        assert got.finish_reason == "length"
        assert got.version == 1


def test_logprobs_equal_a_fresh_forward_over_turns_that_reuse_slots(sampler: LocalSampler) -> None:
    twin = make()
    system = prompt(40, seed=1)

    async def agent(name: str, number: int) -> list[tuple[list[int], Sampled]]:
        ids, turns = system + prompt(number + 1, seed=100 + number), []
        for turn in range(3):
            params = SamplingParams(max_tokens=9 + number % 4, temperature=0.8, seed=10 * number + turn)
            got = await sampler.sample(ids, params, model="policy", session=name)
            turns.append((ids, got))
            ids = ids + list(got.ids) + prompt(5, seed=number * 7 + turn)
        sampler.shut(name)
        return turns

    async def cohort() -> list[list[tuple[list[int], Sampled]]]:
        names = [f"s{number}" for number in range(12)]
        sampler.open(names)
        return list(await asyncio.gather(*(agent(name, n) for n, name in enumerate(names))))

    for turns in asyncio.run(cohort()):
        for before, (ids, got) in zip([None, *turns], turns, strict=False):
            fresh = full_logprobs(twin, ids + list(got.ids), len(got.ids), temperature=0.8)
            torch.testing.assert_close(torch.tensor(got.logprobs), fresh, atol=1e-4, rtol=0)
            if before is not None:
                assert got.cached_tokens >= len(before[0]) + len(before[1].ids) - 1


def test_shared_prefixes_are_read_once_and_change_nothing(sampler: LocalSampler) -> None:
    twin = make()
    system = prompt(60, seed=3)
    prompts = [system + prompt(20, seed=9)] * 3 + [system + prompt(20, seed=8)]
    params = [SamplingParams(max_tokens=6, seed=n) for n in range(4)]

    async def cohort() -> list[Sampled]:
        sampler.open(["a", "b", "c", "d"])
        calls = zip("abcd", prompts, params, strict=True)
        return await together(*(sampler.sample(p, q, model="policy", session=s) for s, p, q in calls))

    found = asyncio.run(cohort())
    assert [got.cached_tokens for got in found] == [0, 79, 79, 60]
    for ids, got in zip(prompts, found, strict=True):
        fresh = full_logprobs(twin, ids + list(got.ids), 6)
        torch.testing.assert_close(torch.tensor(got.logprobs), fresh, atol=1e-4, rtol=0)


def run_cohort(
    seed: int, *, slots: int, noise: bool
) -> list[list[tuple[tuple[int, ...], tuple[float, ...]]]]:
    """Ten agents of unequal length over `slots` slots, with random waits, and other traffic if `noise`."""
    sampler, waits = start(make(), slots=slots), random.Random(seed)

    async def agent(number: int) -> list[tuple[tuple[int, ...], tuple[float, ...]]]:
        ids, turns = prompt(30, seed=5) + prompt(number, seed=number), []
        for turn in range(1 + number % 3):
            await asyncio.sleep(waits.random() * 0.03)
            params = SamplingParams(max_tokens=4 + number, seed=number * 10 + turn)
            got = await sampler.sample(ids, params, model="policy", session=f"s{number}")
            turns.append((got.ids, got.logprobs))
            ids = ids + list(got.ids) + prompt(3, seed=turn)
        await asyncio.sleep(waits.random() * 0.03)
        sampler.shut(f"s{number}")
        return turns

    async def stranger(number: int) -> None:
        await asyncio.sleep(waits.random() * 0.1)
        await sampler.sample(prompt(50, seed=number), SamplingParams(max_tokens=20), model="policy")

    async def all_of_it() -> list[list[tuple[tuple[int, ...], tuple[float, ...]]]]:
        sampler.open([f"s{number}" for number in range(10)])
        strangers = [asyncio.create_task(stranger(number)) for number in range(5 if noise else 0)]
        turns = await asyncio.gather(*(agent(number) for number in range(10)))
        await asyncio.gather(*strangers)
        return list(turns)

    found = asyncio.run(all_of_it())
    assert sampler.late == 0
    sampler.close()
    return found


@pytest.mark.parametrize("slots", [3, 16])
def test_a_cohort_is_the_same_bit_for_bit_whatever_the_clock_and_the_neighbours(slots: int) -> None:
    first = run_cohort(1, slots=slots, noise=False)
    assert run_cohort(2, slots=slots, noise=True) == first
    assert all(len(turns) == 1 + number % 3 for number, turns in enumerate(first))


def test_more_sessions_than_the_model_has_slots() -> None:
    sampler = LocalSampler("cpu", slots=8, max_length=64)
    sampler.serve("small", 1, make(), eos_ids=frozenset(), decode=text, slots=2)

    async def agent(number: int) -> Sampled:
        got = await sampler.sample(
            [1 + number, 2], SamplingParams(max_tokens=5), model="small", session=f"s{number}"
        )
        sampler.shut(f"s{number}")
        return got

    async def cohort() -> list[Sampled]:
        sampler.open([f"s{number}" for number in range(8)])
        return await together(*(agent(number) for number in range(8)))

    assert [len(got.ids) for got in asyncio.run(cohort())] == [5] * 8
    sampler.close()


def test_a_session_waits_while_others_have_all_slots() -> None:
    sampler = start(make(), slots=1)

    async def agent(name: str) -> list[bool]:
        await sampler.sample([1, 2], SamplingParams(max_tokens=2), model="policy", session=name)
        answered = [sampler.waits(other) for other in ("first", "second")]
        sampler.shut(name)
        return answered

    async def cohort() -> list[list[bool]]:
        sampler.open(["first", "second"])
        return await together(agent("first"), agent("second"))

    assert asyncio.run(cohort()) == [[False, True], [False, False]]
    sampler.close()


def test_a_late_session_is_counted_and_does_not_hold_the_others() -> None:
    sampler = start(make(), patience=0.05)

    async def cohort() -> Sampled:
        sampler.open(["prompt", "absent"])
        return await sampler.sample([1], SamplingParams(max_tokens=2), model="policy", session="prompt")

    assert len(asyncio.run(cohort()).ids) == 2
    assert sampler.late == 1
    sampler.close()


def test_end_ids_and_stop_strings_end_a_turn_and_stay_in_the_ids(sampler: LocalSampler) -> None:
    greedy = SamplingParams(max_tokens=12, temperature=0.0)
    free = asyncio.run(sampler.sample([5, 6], greedy, model="m@1"))
    written = text(free.ids)
    stop = written[5:7]
    end = written.index(stop) + 1
    stopping = SamplingParams(max_tokens=12, temperature=0.0, stop=("##", stop))
    got = asyncio.run(sampler.sample([5, 6], stopping, model="m@1"))
    assert got.finish_reason == "stop"
    assert got.ids == free.ids[: end // 2 + 1]

    ending = start(make(), eos=frozenset({free.ids[3]}))
    got = asyncio.run(ending.sample([5, 6], greedy, model="policy"))
    ending.close()
    assert got.finish_reason == "stop"
    assert got.ids == free.ids[: free.ids.index(free.ids[3]) + 1]


def test_a_seed_fixes_the_text_and_another_changes_it(sampler: LocalSampler) -> None:
    async def ask(*seeds: int) -> list[Sampled]:
        calls = [SamplingParams(max_tokens=16, seed=seed) for seed in seeds]
        return await together(*(sampler.sample([7, 8, 9], call, model="policy") for call in calls))

    alone = asyncio.run(ask(4))[0]
    batched = asyncio.run(ask(1, 2, 3, 4, 2**63 - 1))
    assert batched[3].ids == alone.ids
    assert len({got.ids for got in batched}) == 5


def test_tokens_are_told_as_they_come(sampler: LocalSampler) -> None:
    told: list[tuple[int, float]] = []

    async def ask() -> Sampled:
        params = SamplingParams(max_tokens=6, top_logprobs=3)
        return await sampler.sample([3], params, model="policy", on_token=lambda *t: told.append(t))

    got = asyncio.run(ask())
    assert told == list(zip(got.ids, got.logprobs, strict=True))
    assert [len(top) for top in got.top] == [3] * 6


def test_x27_aliases_move_and_a_retired_model_answers_what_is_in_flight(sampler: LocalSampler) -> None:
    sampler.serve("m@2", 2, make(seed=9), eos_ids=frozenset(), decode=text)
    assert sampler.models() == ["m@1", "m@2", "policy"]

    async def ask() -> tuple[Sampled, Sampled]:
        started = asyncio.Event()
        long = SamplingParams(max_tokens=100)
        old = asyncio.create_task(
            sampler.sample([1], long, model="policy", on_token=lambda *_: started.set())
        )
        await started.wait()
        with pytest.raises(InputError, match="still serves policy"):
            sampler.retire("m@1")
        sampler.route("policy", "m@2")
        sampler.retire("m@1")
        with pytest.raises(InputError, match=r"m@1 is not served: choose from m@2, policy"):
            await sampler.sample([1], long, model="m@1")
        new = await sampler.sample([1], SamplingParams(max_tokens=2), model="policy")
        return await old, new

    old, new = asyncio.run(ask())
    assert (old.version, len(old.ids), new.version) == (1, 100, 2)
    assert sampler.models() == ["m@2", "policy"]


def test_t23_what_one_version_has_read_is_no_cache_of_the_next(sampler: LocalSampler) -> None:
    """The same prompt, session by session, before and after the alias moves."""
    twin, ids = make(seed=9), prompt(40, seed=2)
    sampler.serve("m@2", 2, make(seed=9), eos_ids=frozenset(), decode=text)

    async def both(cohort: str) -> list[Sampled]:
        names = [f"{cohort}/0", f"{cohort}/1"]
        sampler.open(names)
        params = SamplingParams(max_tokens=4, seed=1)
        made = await together(*(sampler.sample(ids, params, model="policy", session=name) for name in names))
        for name in names:
            sampler.shut(name)
        return made

    old = asyncio.run(both("old"))
    sampler.route("policy", "m@2")
    sampler.retire("m@1")
    new = asyncio.run(both("new"))
    assert [got.cached_tokens for got in old] == [got.cached_tokens for got in new] == [0, 39]
    for got in new:
        fresh = full_logprobs(twin, ids + list(got.ids), 4)
        torch.testing.assert_close(torch.tensor(got.logprobs), fresh, atol=1e-4, rtol=0)


def test_a_retired_model_is_let_go(sampler: LocalSampler) -> None:
    model = make(seed=9)
    gone = weakref.ref(model)
    sampler.serve("m@2", 2, model, eos_ids=frozenset(), decode=text)
    asyncio.run(sampler.sample([1], SamplingParams(max_tokens=2), model="m@2"))
    del model
    sampler.retire("m@2")
    asyncio.run(sampler.sample([1], SamplingParams(max_tokens=2), model="policy"))
    gc.collect()
    assert gone() is None


def test_a_cohort_that_has_ended_gives_its_memory_back_at_once(
    sampler: LocalSampler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not with the next request: between the two the learner needs the room."""
    banks: list[weakref.ref[Any]] = []
    given_back: list[bool] = []
    released = threading.Event()
    bank = SlotDecoder.bank

    def noted(self: SlotDecoder, slots: int) -> Any:
        made = bank(self, slots)
        banks.append(weakref.ref(made))
        return made

    def release() -> None:
        given_back.extend(made() is None for made in banks)
        released.set()

    monkeypatch.setattr(SlotDecoder, "bank", noted)
    monkeypatch.setattr("strop.engines.local.traffic.release", release)
    sampler.open(["s"])
    asyncio.run(sampler.sample(prompt(9, 1), SamplingParams(max_tokens=3), model="policy", session="s"))
    sampler.shut("s")
    assert released.wait(60)
    assert given_back == [True]


def test_a_cancelled_request_frees_its_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    sampler, cancelled, step = start(make(), slots=1), threading.Event(), SlotDecoder.step
    steps: list[int] = []

    def held_after_the_first(self: SlotDecoder, *given: Any) -> Any:
        assert not steps or cancelled.wait(60)
        steps.append(len(steps))
        return step(self, *given)

    monkeypatch.setattr(SlotDecoder, "step", held_after_the_first)

    async def ask() -> Sampled:
        started = asyncio.Event()
        endless = SamplingParams(max_tokens=250)
        task = asyncio.create_task(
            sampler.sample([1], endless, model="policy", on_token=lambda *_: started.set())
        )
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        cancelled.set()
        return await sampler.sample([2], SamplingParams(max_tokens=3), model="policy")

    assert len(asyncio.run(ask()).ids) == 3
    assert len(steps) < 20
    sampler.close()


@pytest.mark.parametrize(
    ("ids", "params", "message"),
    [
        ([], {}, "prompt of 0 tokens"),
        ([1] * 256, {}, "prompt of 256 tokens: 1 to 255"),
        ([VOCAB], {}, "outside the vocabulary of 96"),
        ([1], {"max_tokens": 0}, "max_tokens is 0"),
        ([1], {"temperature": -1.0}, "temperature is -1.0"),
        ([1], {"top_p": 0.0}, "top_p is 0.0"),
        ([1], {"top_logprobs": 21}, "top_logprobs is 21"),
    ],
)
def test_what_cannot_be_answered_is_refused(
    sampler: LocalSampler, ids: list[int], params: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        asyncio.run(sampler.sample(ids, SamplingParams(**params), model="policy"))


def test_a_completion_ends_at_the_longest_length(sampler: LocalSampler) -> None:
    got = asyncio.run(sampler.sample([1] * 250, SamplingParams(max_tokens=50), model="policy"))
    assert (len(got.ids), got.finish_reason) == (6, "length")


def test_sessions_cannot_be_opened_twice(sampler: LocalSampler) -> None:
    sampler.open(["a"])
    with pytest.raises(InputError, match="open already"):
        sampler.open(["b", "a"])
    sampler.shut("a")
    sampler.shut("never heard of")


def test_logits_that_are_not_finite_fail_the_request_and_leave_the_slot_clean() -> None:
    model = make()
    with torch.no_grad():
        model.get_input_embeddings().weight[50] = float("nan")
    sampler = start(model, slots=1)

    async def ask() -> Sampled:
        params = SamplingParams(max_tokens=3, temperature=0.0)
        with pytest.raises(EngineError, match="not finite"):
            await sampler.sample([1, 50, 2], params, model="policy")
        return await sampler.sample([1, 2], params, model="policy")

    assert len(asyncio.run(ask()).ids) == 3
    sampler.close()


def test_a_crash_and_a_close_tell_whoever_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    sampler = start(make())
    monkeypatch.setattr(SlotDecoder, "step", lambda *_: 1 / 0)
    with pytest.raises(EngineError, match="worker stopped: ZeroDivisionError"):
        asyncio.run(sampler.sample([1], SamplingParams(), model="policy"))
    with pytest.raises(EngineError, match="worker stopped"):
        asyncio.run(sampler.sample([1], SamplingParams(), model="policy"))
    sampler.close()
    monkeypatch.undo()

    closing = start(make())

    async def wait() -> None:
        closing.open(["a", "b"])
        threading.Timer(0.05, closing.close).start()
        await closing.sample([1], SamplingParams(), model="policy", session="a")

    with pytest.raises(EngineError, match="closed"):
        asyncio.run(wait())
    closing.close()


def test_a_model_with_another_attention_is_served_slowly_and_says_so() -> None:
    model = make()
    model.__class__._supports_attention_backend, was = False, model.__class__._supports_attention_backend
    try:
        with pytest.warns(RuntimeWarning, match="decoded without a cache"):
            sampler = start(model)
    finally:
        model.__class__._supports_attention_backend = was
    quick, greedy = start(make()), SamplingParams(max_tokens=8, temperature=0.0)
    slow = asyncio.run(sampler.sample([1, 2, 3], greedy, model="policy"))
    assert slow.ids == asyncio.run(quick.sample([1, 2, 3], greedy, model="policy")).ids
    sampler.close()
    quick.close()

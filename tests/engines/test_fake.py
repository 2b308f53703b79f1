"""The fake engine's arithmetic against peers' numbers and finite differences, and its serving side."""

import asyncio
import math
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest

from strop.engine import Engine
from strop.engines.fake import FakeConfig, FakeEngine
from strop.engines.fake_sampler import FakeSampler, FakeTokenizer
from strop.engines.tabular import clipped_loss, contexts, read_out
from strop.errors import EngineError, InputError, ModelError, PublishError
from strop.inference.chat import Chat
from strop.inference.gateway import Gateway
from strop.inference.sampling import Sampler, SamplingParams, Tokenizer
from strop.inference.server import serve
from strop.trajectory.tokens import Row


def row(ids: list[int], mask: list[int], logprobs: list[float]) -> Row:
    held = np.zeros(len(ids))
    held[np.array(mask, dtype=bool)] = logprobs
    return Row(
        trajectory_id="t",
        ids=np.array(ids, dtype=np.int64),
        mask=np.array(mask, dtype=np.bool_),
        logprobs=held,
        turn_of=np.zeros(len(ids), dtype=np.int64),
        temperature=0.7,
    )


def test_it_fits_the_seams() -> None:
    engine = FakeEngine()
    seam: tuple[Engine, Sampler, Tokenizer] = (engine, engine.sampler, FakeTokenizer())
    assert seam[0].info.vocab_size == 16


def test_the_loss_is_the_peers_token_mean() -> None:
    """TRL and verl agree on 1.178571 and these gradients for clip 0.2 (measured on their code)."""
    ratio = np.array([[0.5, 1, 1.5, 1.1], [0.7, 1.25, 10, 123]])
    first = clipped_loss(np.log(ratio[0]), np.zeros(4), 1.0, 0.2)
    second = clipped_loss(np.log(ratio[1][:3]), np.zeros(3), -1.0, 0.2)
    assert (first.loss.sum() + second.loss.sum()) / 7 == pytest.approx(1.178571, abs=1e-6)
    np.testing.assert_allclose(first.slope / 7, [-0.071429, -0.142857, 0, -0.157143], atol=1e-6)
    np.testing.assert_allclose(second.slope / 7, [0, 0.178571, 1.428571], atol=1e-6)


def test_off_policy_the_gradient_is_that_of_the_reported_loss() -> None:
    engine = FakeEngine(FakeConfig(base_scale=1.0))
    rows = [
        row([1, 2, 3, 4], [0, 0, 1, 1], [-2.6, -2.9]),
        row([5, 1, 7, 7, 3], [0, 1, 0, 1, 1], [-3.0, -2.2, -2.8]),
    ]
    advantages = [0.8, -1.3]
    rng = np.random.default_rng(3)
    engine.delta = 0.1 * rng.standard_normal(engine.delta.shape)
    start = engine.delta.copy()
    engine.accumulate(rows, advantages)
    gradient = engine.gradient.copy()

    def loss(delta: Any) -> float:
        engine.delta = delta
        return engine.accumulate(rows, advantages)["loss"]

    for _ in range(5):
        direction = rng.standard_normal(start.shape)
        slope = (loss(start + 1e-6 * direction) - loss(start - 1e-6 * direction)) / 2e-6
        assert slope == pytest.approx(float((gradient * direction).sum()), rel=1e-5, abs=1e-9)


def test_contexts_are_digits_of_the_tokens_before() -> None:
    """Base 17, two digits: none none, none 1, 1 2, 2 0."""
    got = contexts(np.array([1, 2, 0]), vocab=16, order=2)
    assert got.tolist() == [16 * 17 + 16, 16 * 17 + 1, 1 * 17 + 2, 2 * 17 + 0]


def test_read_out_of_a_known_distribution() -> None:
    p = np.array([[0.5, 0.25, 0.125, 0.125]])
    got = read_out(np.log(p), np.array([1]))
    assert got.logprobs[0] == pytest.approx(math.log(0.25))
    assert got.entropy[0] == pytest.approx(1.75 * math.log(2))
    # mean of -log p is (1 + 2 + 3 + 3) / 4 log 2, less log 4
    assert got.self_certainty[0] == pytest.approx(0.25 * math.log(2))


def test_one_advantage_a_row() -> None:
    with pytest.raises(InputError, match="1 rows but 2 advantages"):
        FakeEngine().accumulate([row([1, 2], [0, 1], [-1.0])], [1.0, 2.0])


def test_closed_it_refuses_to_work() -> None:
    engine = FakeEngine()
    engine.close()
    with pytest.raises(EngineError, match="closed"):
        engine.publish()


def test_a_folder_that_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="not a checkpoint"):
        FakeEngine().load(tmp_path)
    FakeEngine(FakeConfig(vocab=8)).save(tmp_path)
    with pytest.raises(ModelError, match="another schema or shape"):
        FakeEngine().load(tmp_path)


def test_the_probe_finds_a_stale_table(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = FakeEngine()
    monkeypatch.setattr(FakeSampler, "serve", lambda *_: None)
    engine.delta = engine.delta + np.eye(*engine.delta.shape)
    with pytest.raises(PublishError, match="fake@1"):
        engine.publish()
    assert engine.info.policy_version == 0


def draw(engine: FakeEngine, model: str = "policy", **params: Any) -> Any:
    return asyncio.run(
        engine.sampler.sample([1, 2], SamplingParams(**{"max_tokens": 6, **params}), model=model)
    )


def test_a_draw_depends_on_its_seed_alone() -> None:
    assert draw(FakeEngine(), seed=3) == draw(FakeEngine(), seed=3)
    assert len({draw(FakeEngine(), seed=seed).ids for seed in range(8)}) > 1


def test_frequencies_follow_the_log_probs() -> None:
    engine = FakeEngine(FakeConfig(base_scale=1.5))
    firsts = [draw(engine, seed=seed, max_tokens=1) for seed in range(2000)]
    ids = [one.ids[0] for one in firsts]
    common = max(set(ids), key=ids.count)
    p = math.exp(next(one.logprobs[0] for one in firsts if one.ids[0] == common))
    assert abs(ids.count(common) / 2000 - p) < 4 * math.sqrt(p * (1 - p) / 2000)


def test_greedy_and_nucleus() -> None:
    engine = FakeEngine()
    greedy = draw(engine, temperature=0.0, max_tokens=1)
    assert greedy.logprobs == (0.0,)
    assert draw(engine, top_p=1e-9, max_tokens=1).ids == greedy.ids


def test_reference_stays_what_it_was() -> None:
    engine = FakeEngine()
    before = draw(engine, "reference")
    assert (before.model, draw(engine).model) == ("reference", "fake@0")
    engine.delta = engine.delta + np.random.default_rng(0).standard_normal(engine.delta.shape)
    engine.publish()
    assert draw(engine, "reference").logprobs == before.logprobs
    assert draw(engine, "policy").logprobs != before.logprobs


def test_a_model_that_is_not_served() -> None:
    with pytest.raises(InputError, match="'gpt' is not served; there are: fake@0, policy, reference"):
        draw(FakeEngine(), "gpt")


def test_a_gateway_serves_it() -> None:
    engine = FakeEngine()
    gateway = Gateway(engine.sampler, Chat(FakeTokenizer()), api_key="k", max_context=500)

    async def ask(url: str) -> str:
        async with openai.AsyncOpenAI(base_url=url, api_key="k", max_retries=0) as client:
            messages: Any = [{"role": "user", "content": "abc"}]
            answer = await client.chat.completions.create(
                model="policy", messages=messages, max_tokens=5, seed=1
            )
            return answer.choices[0].message.content or ""

    with serve(gateway.app) as server:
        gateway.root = server.url
        said = asyncio.run(ask(gateway.open(["s"])["s"]))
        (call,) = gateway.take("s")
    assert FakeTokenizer().decode(call.turn.sampled_ids).strip() == said
    assert call.turn.policy_version == 0

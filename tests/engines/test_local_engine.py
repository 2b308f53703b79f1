"""The local engine as a whole: publishing and its probe, checkpoints, and what it refuses."""

import asyncio
import json
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest
import torch

from local_model import make_row
from strop.engines.local import in_process
from strop.engines.local.engine import LocalConfig, LocalEngine
from strop.engines.local.learner import LearnerSettings
from strop.engines.local.tokenizer import HFTokenizer
from strop.engines.local.weights import LoraShape, save_adapter
from strop.errors import EngineError, InputError, ModelError, PublishError
from strop.inference.chat import Chat
from strop.inference.sampling import Sampled, SamplingParams, Tokenizer
from strop.trajectory.tokens import Row

pytestmark = pytest.mark.usefixtures("one_thread")

ROWS = [make_row([3, 9, 2, 7, 1, 30], [0, 0, 0, 1, 1, 1]), make_row([3, 9, 2, 8, 8], [0, 0, 0, 1, 1])]
ADVANTAGES = [1.0, -1.0]
Open = Callable[..., LocalEngine]


@pytest.fixture
def start(tiny_model: Path) -> Iterator[Open]:
    """Opens engines on the tiny model, and closes them after the test."""
    opened: list[LocalEngine] = []

    def one(**changes: Any) -> LocalEngine:
        config = {
            "model": str(tiny_model),
            "lora": LoraShape(rank=4),
            "learner": LearnerSettings(learning_rate=2e-2),
            "dtype": "float32",
            "device": "cpu",
            "slots": 4,
            "max_length": 128,
        }
        opened.append(LocalEngine(LocalConfig(**{**config, **changes})))
        return opened[-1]

    yield one
    for engine in opened:
        engine.close()


def train(engine: LocalEngine, steps: int = 1) -> None:
    """Steps on rows that the policy of the first step might have sampled."""
    rows = sampled_now(engine)
    for _ in range(steps):
        engine.accumulate(rows, ADVANTAGES)
        engine.step()


def sampled_now(engine: LocalEngine) -> list[Row]:
    return [
        make_row(row.ids.tolist(), row.mask.tolist(), logprobs=values.tolist())
        for row, values in zip(ROWS, engine.logprobs(ROWS, "policy"), strict=True)
    ]


def draw(engine: LocalEngine, model: str = "policy") -> Sampled:
    """What is sampled, whatever of the prompt was in the cache."""
    params = SamplingParams(max_tokens=6, seed=4)
    return replace(asyncio.run(engine.sampler.sample([3, 9, 2], params, model=model)), cached_tokens=0)


def test_what_it_says_of_itself(start: Open, tiny_model: Path) -> None:
    info = start().info
    assert (info.model, info.device, info.dtype) == (str(tiny_model), "cpu", "float32")
    assert (info.vocab_size, info.policy_version) == (64, 0)


def test_an_agent_is_answered_by_the_policy(start: Open) -> None:
    engine = start()

    async def ask() -> Any:
        url = engine.gateway.open(["s"])["s"]
        async with openai.AsyncOpenAI(base_url=url, api_key=engine.api_key, max_retries=0) as client:
            return await client.chat.completions.create(
                model="policy", messages=[{"role": "user", "content": "ab"}], max_tokens=4, seed=1
            )

    answer = asyncio.run(ask())
    (call,) = engine.gateway.take("s")
    assert engine.decode(call.turn.sampled_ids).strip() == answer.choices[0].message.content
    ids = [*call.turn.prompt_ids, *call.turn.sampled_ids]
    assert engine.decode(call.turn.prompt_ids) == "user: abassistant: "
    row = make_row(ids, [0] * len(call.turn.prompt_ids) + [1] * len(call.turn.sampled_ids))
    np.testing.assert_allclose(engine.logprobs([row], "policy")[0], call.turn.logprobs, atol=1e-4)


def test_t22_the_probe_finds_an_adapter_that_is_not_served(
    start: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bare base in place of a policy far from it: the old version goes on serving, and alone."""
    engine = start()
    before = draw(engine)
    train(engine, 5)
    with monkeypatch.context() as patch:
        patch.setattr(in_process, "folded", lambda base, model, adapter: in_process.share(base))
        with pytest.raises(PublishError, match=r"policy@1: served log-probs are .* nats from the learner's"):
            engine.publish()
    assert engine.info.policy_version == 0
    assert engine.sampler.models() == ["policy@0", "policy"]
    assert draw(engine) == before
    published = engine.publish()
    assert (published.version, published.name) == (1, "policy@1")
    assert published.probe_gap <= published.probe_bound == 1e-3
    assert draw(engine).logprobs != before.logprobs


def test_a_probe_that_cannot_be_asked_leaves_nothing_behind(
    start: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = start()
    train(engine)
    with monkeypatch.context() as patch:
        patch.setattr(engine, "_asked", lambda name, probe: ((3, float("nan")),))
        with pytest.raises(PublishError):
            engine.publish()
        patch.setattr(engine, "_asked", lambda name, probe: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            engine.publish()
    assert engine.sampler.models() == ["policy@0", "policy"]
    assert engine.publish().version == 1


def test_without_a_step_nothing_is_said_to_have_moved(start: Open) -> None:
    """Rows were accumulated, and the new version is the old one: its answers may well be the same."""
    engine = start()
    engine.accumulate(sampled_now(engine), ADVANTAGES)
    first = engine.publish()
    assert (first.probe_gap < 1e-4, first.probe_separation) == (True, pytest.approx(0.0, abs=1e-5))
    train(engine)
    assert (engine.publish().probe_separation or 0) > 1e-3


def test_several_steps_before_a_publish_are_held_against_what_is_served(start: Open, tmp_path: Path) -> None:
    """The first rows since then say where to ask, also after a restart: only those are of what is served."""
    engine, other = start(), start()
    train(engine, 4)
    engine.save(tmp_path)
    other.load(tmp_path)
    published, again = engine.publish(), other.publish()
    assert (published.probe_separation or 0) > 0.05
    assert (again.probe_gap, again.probe_separation) == (published.probe_gap, published.probe_separation)


def test_old_versions_are_retired(start: Open) -> None:
    engine = start()
    for _ in range(3):
        train(engine)
        engine.publish()
    assert engine.sampler.models() == ["policy@3", "policy"]
    with pytest.raises(InputError, match="policy@1 is not served"):
        draw(engine, "policy@1")


def test_training_changes_what_is_served_only_when_published(start: Open) -> None:
    engine = start()
    before = draw(engine)
    train(engine, 3)
    assert draw(engine) == before
    engine.publish()
    after = draw(engine)
    assert after.version == 1
    row = make_row([3, 9, 2, *after.ids], [0] * 3 + [1] * len(after.ids))
    np.testing.assert_allclose(engine.logprobs([row], "policy")[0], after.logprobs, atol=1e-4)


def test_publishing_makes_the_policy_the_samplers_again(start: Open) -> None:
    engine = start()
    assert engine.learner.on_policy
    train(engine)
    assert not engine.learner.on_policy
    engine.publish()
    assert engine.learner.on_policy


def test_save_then_load_is_bit_identical(start: Open, tmp_path: Path) -> None:
    straight, other = start(), start()
    train(straight, 2)
    straight.publish()
    straight.save(tmp_path)
    other.load(tmp_path)
    for engine in (straight, other):
        train(engine, 2)
    for a, b in zip(straight.learner.parameters, other.learner.parameters, strict=True):
        assert torch.equal(a, b)
    assert straight.publish().version == other.publish().version == 2
    assert draw(straight) == draw(other)
    for adapter in ("policy", "reference"):
        for a, b in zip(straight.logprobs(ROWS, adapter), other.logprobs(ROWS, adapter), strict=True):  # type: ignore[arg-type]
            np.testing.assert_array_equal(a, b)


def test_loading_drops_what_was_accumulated_and_takes_no_version_back(start: Open, tmp_path: Path) -> None:
    engine = start()
    engine.save(tmp_path)
    train(engine)
    assert engine.publish().version == 1
    engine.accumulate(ROWS, ADVANTAGES, "supervised")
    engine.load(tmp_path)
    with pytest.raises(EngineError, match="no token was accumulated"):
        engine.step()
    assert engine.publish().name == "policy@2"


def test_folders_that_are_no_checkpoint_are_refused_and_change_nothing(start: Open, tmp_path: Path) -> None:
    engine = start()
    train(engine)
    whole = tmp_path / "whole"
    whole.mkdir()
    engine.save(whole)
    before = [p.detach().clone() for p in engine.learner.parameters]

    def damaged(name: str, damage: Callable[[Path], Any]) -> Path:
        folder = Path(shutil.copytree(whole, tmp_path / name))
        damage(folder)
        return folder

    def other_shape(folder: Path) -> None:
        save_adapter(start(lora=LoraShape(rank=2))._model, folder / "adapter")

    for folder in (
        tmp_path / "nowhere",
        damaged("no-state", lambda f: (f / "engine.json").unlink()),
        damaged("bad-state", lambda f: (f / "engine.json").write_text("[")),
        damaged("schema", lambda f: (f / "engine.json").write_text('{"schema": 99}')),
        damaged("part", lambda f: (f / "engine.json").write_text('{"schema": 2}')),
        damaged("list", lambda f: (f / "engine.json").write_text("[]")),
        damaged("optimizer", lambda f: (f / "optimizer.pt").write_bytes(b"torn")),
        damaged("empty", lambda f: (f / "optimizer.pt").write_bytes(b"")),
        damaged("tensors", lambda f: (f / "adapter" / "adapter_model.safetensors").write_bytes(b"torn")),
        damaged("shape", other_shape),
    ):
        with pytest.raises(ModelError) as error:
            engine.load(folder)
        assert str(folder) in str(error.value)
        assert "\n" not in str(error.value)
        assert all(torch.equal(a, b) for a, b in zip(before, engine.learner.parameters, strict=True))


def test_a_checkpoints_adapter_is_a_warm_start(start: Open, tmp_path: Path) -> None:
    """The reference of a run from it is the adapter, unless the base is asked for."""
    first = start()
    base = first.logprobs(ROWS, "reference")
    train(first, 3)
    trained = first.logprobs(ROWS, "policy")
    save_adapter(first._model, tmp_path)
    warm = start(adapter=tmp_path)
    against_base = start(adapter=tmp_path, reference="base")
    for expected, got in (
        (trained, warm.logprobs(ROWS, "policy")),
        (trained, warm.logprobs(ROWS, "reference")),
        (trained, against_base.logprobs(ROWS, "policy")),
        (base, against_base.logprobs(ROWS, "reference")),
    ):
        np.testing.assert_allclose(np.concatenate(got), np.concatenate(expected), atol=1e-6)


def test_other_adapters_are_served_beside_the_policy(start: Open, tmp_path: Path) -> None:
    trained = start()
    train(trained, 4)
    trained.publish()
    save_adapter(trained._model, tmp_path)
    engine = start()
    engine.serve_adapter("judge", tmp_path)
    engine.serve_adapter("bare", None, slots=2)
    assert engine.sampler.models() == ["policy@0", "judge", "bare", "policy"]
    np.testing.assert_allclose(draw(engine, "judge").logprobs, draw(trained).logprobs, atol=1e-4)
    assert draw(engine, "bare").logprobs == draw(engine).logprobs
    train(engine)
    assert engine.publish().version == 1
    with pytest.raises(ModelError, match="no adapter here"):
        engine.serve_adapter("other", tmp_path / "nowhere")


def test_wrong_use_is_one_line(start: Open) -> None:
    engine = start()
    with pytest.raises(InputError, match="2 rows but 1 advantages"):
        engine.accumulate(ROWS, [1.0])
    with pytest.raises(InputError, match="vocabulary"):
        engine.logprobs([make_row([1, 2, 99], [0, 0, 1])], "policy")
    with pytest.raises(EngineError, match="no token was accumulated"):
        engine.step()


def test_closed_it_refuses_to_work_and_close_may_be_called_again(start: Open, tmp_path: Path) -> None:
    engine = start()
    engine.close()
    engine.close()
    for call in (
        lambda: engine.publish(),
        lambda: engine.step(),
        lambda: engine.accumulate(ROWS, ADVANTAGES),
        lambda: engine.score(ROWS, "policy"),
        lambda: engine.save(tmp_path),
        lambda: engine.load(tmp_path),
    ):
        with pytest.raises(EngineError, match="the engine is closed"):
            call()


def test_models_that_cannot_be_opened(start: Open, tiny_model: Path, tmp_path: Path) -> None:
    untold, wordless = (Path(shutil.copytree(tiny_model, tmp_path / name)) for name in ("untold", "wordless"))
    (untold / "chat_template.jinja").unlink()
    for file in wordless.glob("token*"):
        file.unlink()
    empty = tmp_path / "empty"
    empty.mkdir()
    for folder, said in (
        (tmp_path / "nowhere", "no such model folder"),
        (empty, "no config.json"),
        (untold, "no chat template"),
        (wordless, "tokenizer"),
    ):
        with pytest.raises(ModelError, match=said) as error:
            start(model=str(folder))
        assert "\n" not in str(error.value)
        assert str(folder) in str(error.value)


def test_a_port_in_use_is_said_and_leaves_no_thread(start: Open) -> None:
    before = set(threading.enumerate())
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(InputError):
            start(port=taken.getsockname()[1])
    assert set(threading.enumerate()) <= before


def test_the_tokenizer_fits_its_seam(tiny_model: Path) -> None:
    tokenizer: Tokenizer = HFTokenizer.load(tiny_model)
    assert tokenizer.encode("ab</s>", special=True) == [3, 4, 2]
    assert 2 not in tokenizer.encode("ab</s>", special=False)
    assert tokenizer.decode([1, 3, 4, 2]) == "ab"
    assert (tokenizer.bos_token, tokenizer.eos_token, tokenizer.eos_ids) == ("<s>", "</s>", frozenset({2}))
    prompt = Chat(tokenizer).prompt([{"role": "user", "content": "a</s>b"}])
    assert prompt.count(2) == 1


def test_every_end_that_the_model_declares_ends_a_turn(tiny_model: Path, tmp_path: Path) -> None:
    """Phi and Gemma declare several; honouring only the tokenizer's lets replies run on."""
    folder = Path(shutil.copytree(tiny_model, tmp_path / "ends"))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 7]}))
    assert HFTokenizer.load(folder).eos_ids == {2, 7}
    (folder / "generation_config.json").unlink()
    assert HFTokenizer.load(folder).eos_ids == {2}

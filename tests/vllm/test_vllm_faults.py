"""A real vLLM that is killed, slow or given a wrong adapter: what was served comes back, and nothing else."""

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import spoiled

from strop.engines.vllm import serving as module
from strop.errors import PublishError, ServerLost
from strop.inference.sampling import Sampled, SamplingParams
from vllm_server import LENGTH, PROMPT, Supervised

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(3600)]
SHARP = 1e-4
"""One model asked twice, after a restart too: only rounding may differ."""


@contextmanager
def lost_once(server: Supervised) -> Iterator[None]:
    """The server is lost within the block, once, and is back at its end."""
    lost, restored = len(server.heard.of("server_lost")), len(server.heard.of("server_restored"))
    yield
    cause = server.heard.wait_for("server_lost", lost + 1)
    assert cause["cause"] == "its process ended"
    assert "vllm" in cause["log"].lower()
    assert server.heard.wait_for("server_restored", restored + 1)["seconds"] > 0
    assert len(server.heard.of("server_lost")) == lost + 1


def told(found: Sampled) -> tuple[Any, ...]:
    """Who answered what."""
    return found.model, found.version, found.ids


def assert_same(now: Sampled, before: Sampled) -> None:
    assert told(now) == told(before)
    assert now.logprobs == pytest.approx(before.logprobs, abs=SHARP)


def test_versions_say_different_things(server: Supervised) -> None:
    """Else nothing below could fail."""
    said = [server.ask(name).logprobs for name in ("policy", "judge", "base")]
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert max(abs(a - b) for a, b in zip(said[one], said[other], strict=False)) > 10 * SHARP


def test_killed_while_idle(server: Supervised) -> None:
    before = {name: server.ask(name) for name in ("policy", "judge", "base")}
    with lost_once(server):
        server.kill()
    for name, said in before.items():
        assert_same(server.ask(name), said)


def test_killed_while_sampling(server: Supervised) -> None:
    before = server.ask()
    heard: list[int] = []

    def at_the_third(token: int, logprob: float) -> None:
        heard.append(token)
        if len(heard) == 3:
            server.kill()

    async def long() -> Sampled:
        params = SamplingParams(max_tokens=LENGTH - len(PROMPT), temperature=0.0)
        sampler = server.engine.sampler
        return await sampler.sample(PROMPT, params, model="policy", on_token=at_the_third)

    with lost_once(server):
        with pytest.raises(ServerLost, match="vLLM was lost while it answered"):
            asyncio.run(long())
        with pytest.raises(ServerLost, match="cannot be asked now"):
            server.ask()
        asyncio.run(server.engine.sampler.ready())
    assert len(heard) >= 3
    assert_same(server.ask(), before)


def stopped_loading(server: Supervised, patch: pytest.MonkeyPatch, then: Callable[[], None]) -> None:
    """The server stands still once the next adapter is sent to it; `then` is called a while after."""
    control = server.engine._serving._control
    load = control.load

    def still(url: str, name: str, folder: str) -> None:
        patch.setattr(control, "load", load)
        server.signal(signal.SIGSTOP)
        threading.Timer(3.0, then).start()
        load(url, name, folder)

    patch.setattr(control, "load", still)


def test_killed_while_it_loads_an_adapter(server: Supervised, monkeypatch: pytest.MonkeyPatch) -> None:
    version, judge = server.engine.info.policy_version, server.ask("judge")
    server.train()
    with lost_once(server):
        stopped_loading(server, monkeypatch, server.kill)
        published = server.engine.publish()
    assert published.version == version + 1
    assert published.probe_gap <= published.probe_bound
    assert server.ask().model == published.name
    assert_same(server.ask("judge"), judge)


def test_a_slow_load_is_waited_for(server: Supervised, monkeypatch: pytest.MonkeyPatch) -> None:
    lost = len(server.heard.of("server_lost"))
    server.train()
    stopped_loading(server, monkeypatch, lambda: server.signal(signal.SIGCONT))
    published = server.engine.publish()
    assert server.ask().model == published.name
    assert len(server.heard.of("server_lost")) == lost


WRONG = {
    "prefix": spoiled.rewriting(spoiled.other_prefix),
    "rank": spoiled.rewriting(spoiled.other_rank, {"r": spoiled.WIDE, "lora_alpha": spoiled.WIDE}),
    "base": spoiled.rewriting(spoiled.other_base),
    "silent": spoiled.rewriting(spoiled.silent),
}
SAID = {
    "prefix": "vLLM refused to load|the adapter did not arrive",
    "rank": "vLLM refused to load .*rank",
    "base": "vLLM refused to load|served log-probs are",
    "silent": "exactly as the bare base: the adapter did not arrive",
}


@pytest.mark.parametrize("fault", WRONG)
def test_a_wrong_adapter_is_never_served(
    server: Supervised, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    refuse(server, monkeypatch, WRONG[fault], SAID[fault])


def test_the_adapter_of_the_version_before_is_never_served_as_the_new_one(
    server: Supervised, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    server.engine.save(tmp_path)
    save = spoiled.rewriting(spoiled.stale(tmp_path / "adapter"))
    refuse(server, monkeypatch, save, "exactly as the version before it: the adapter did not arrive")


def refuse(server: Supervised, patch: pytest.MonkeyPatch, save: spoiled.Save, said: str) -> None:
    """An adapter saved like this is refused in one line; the version before goes on, the next one comes."""
    lost, before = len(server.heard.of("server_lost")), server.ask()
    server.train()
    with patch.context() as spoiling:
        spoiling.setattr(module, "save_adapter", save)
        with pytest.raises(PublishError, match=said) as refused:
            server.engine.publish()
    print(f"\n{refused.value}")
    assert "\n" not in str(refused.value)
    assert_same(server.ask(), before)
    assert server.engine.info.policy_version == before.version
    published = server.engine.publish()
    assert server.ask().model == published.name != before.model
    assert len(server.heard.of("server_lost")) == lost

"""Versions served by a supervised server, against a stand-in for vLLM that misbehaves when told to."""

import asyncio
import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import vllm_stub

from heard import Heard
from strop.engines.fake_sampler import FakeTokenizer
from strop.engines.serving import Events, Ground, Told
from strop.engines.vllm import serving as module
from strop.engines.vllm.serving import VllmServing
from strop.engines.vllm.settings import VllmSettings
from strop.errors import EngineError, InputError, PublishError, ServerLost
from strop.inference.sampling import Sampled, SamplingParams

PATIENCE_S = 120.0
PROMPT = (1, 2)
TOLD = Told(prompt=PROMPT)
PARAMS = SamplingParams(max_tokens=1, top_logprobs=3)
GROUND = Ground(
    source="stub",
    base=None,
    device="cpu",
    dtype="float32",
    tokenizer=FakeTokenizer(),
    rank=2,
    slots=4,
    max_length=64,
    bound=1e-3,
    token_bytes=10,
)


class Bench:
    """A serving over the stand-in. `tell` makes it misbehave."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.folder, self.heard = folder, Heard(PATIENCE_S)
        events = Events()
        events.listen(self.heard)
        given = {"python": vllm_stub.install(folder), "start_timeout_s": PATIENCE_S, **settings}
        self.serving = VllmServing(VllmSettings(**given), GROUND, events)

    def tell(self, name: str) -> Path:
        file = self.folder / name
        file.touch()
        return file

    @property
    def pid(self) -> int:
        return int((self.folder / "pid").read_text())

    def ask(self, model: str = "policy") -> Sampled:
        return asyncio.run(self.serving.sampler.sample(PROMPT, PARAMS, model=model))

    def publish(self, version: int, weight: float) -> str:
        name = f"policy@{version}"
        self.serving.serve(name, version, weight, TOLD)
        self.serving.route("policy", name)
        return name


Open = Callable[..., Bench]


@pytest.fixture
def open_bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    """Opens benches that are closed after the test. An adapter is a number."""

    def save(adapter: float, path: Path) -> None:
        path.mkdir()
        (path / "weight.json").write_text(json.dumps(adapter))

    monkeypatch.setenv("STUB_DIR", str(tmp_path))
    monkeypatch.setattr(module, "save_adapter", save)
    monkeypatch.setattr(module, "write_bare", lambda adapter, folder: save(0.0, folder))
    opened: list[Bench] = []

    def one(**settings: Any) -> Bench:
        opened.append(Bench(tmp_path, **settings))
        return opened[-1]

    yield one
    for bench in opened:
        bench.serving.close()


def until(true: Callable[[], bool]) -> None:
    """For what no event tells."""
    end = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def expected(weight: float) -> dict[int, float]:
    """The three likeliest tokens behind PROMPT, by hand."""
    logits = [math.cos(token + 2) + weight * math.cos(3 * token) for token in range(16)]
    total = math.log(sum(map(math.exp, logits)))
    likely = sorted(range(16), key=lambda token: -logits[token])[:3]
    return {token: logits[token] - total for token in likely}


def test_every_version_answers_under_its_own_name(open_bench: Open) -> None:
    bench = open_bench()
    bench.publish(0, 0.5)
    assert bench.ask().model == "policy@0"
    bench.publish(1, 2.0)
    bench.serving.serve("judge", 0, -1.0, TOLD)
    assert bench.serving.sampler.models() == ["policy@1", "base", "policy@0", "judge", "policy"]
    for name, version, weight in (
        ("policy", 1, 2.0),
        ("policy@0", 0, 0.5),
        ("judge", 0, -1.0),
        ("base", 0, 0),
    ):
        found = bench.ask(name)
        assert (found.version, found.model) == (version, "policy@1" if name == "policy" else name)
        assert dict(found.top[0]) == pytest.approx(expected(weight))
        assert found.ids == (found.top[0][0][0],)
        assert found.logprobs == (found.top[0][0][1],)
    with pytest.raises(InputError, match="policy@1 is already served"):
        bench.serving.serve("policy@1", 1, 1.0, TOLD)
    with pytest.raises(InputError, match=r"nobody is not served: choose from .*policy@0"):
        bench.ask("nobody")


def test_a_retired_version_is_unloaded_after_its_last_request(open_bench: Open) -> None:
    bench = open_bench()
    bench.publish(0, 0.5)
    held, asked = bench.tell("hold"), bench.folder / "asked"
    asked.unlink()
    answers: list[Sampled] = []
    asking = threading.Thread(target=lambda: answers.append(bench.ask()))
    asking.start()
    until(asked.exists)
    served = next(one for one in bench.serving._roster.served() if one.name == "policy@0")
    held_name = bench.serving._server.url
    # Loading probes the new version, which the stand-in would hold as well.
    held.unlink()
    bench.publish(1, 2.0)
    bench.serving.retire("policy@0")
    with pytest.raises(InputError, match="policy@0 is not served"):
        bench.ask("policy@0")
    asking.join(PATIENCE_S)
    assert answers[0].model == "policy@0"
    until(lambda: not served.folder.exists())
    listed = [model["id"] for model in bench.serving._control.models(held_name)]
    assert listed == ["base", "base@0", "policy@1"]


def test_death_while_idle_is_seen_and_what_was_served_comes_back(open_bench: Open) -> None:
    bench = open_bench()
    bench.publish(0, 0.5)
    bench.publish(1, 2.0)
    before = bench.ask()
    os.kill(bench.pid, signal.SIGKILL)
    lost = bench.heard.wait_for("server_lost")
    assert lost["cause"] == "its process ended"
    assert "warden: the server ended with code -9" in lost["log"]
    assert bench.heard.wait_for("server_restored")["seconds"] > 0
    assert bench.ask() == before
    assert dict(bench.ask("policy@0").top[0]) == pytest.approx(expected(0.5))


def test_a_request_caught_in_it_is_lost_and_the_next_one_is_answered(open_bench: Open) -> None:
    bench = open_bench()
    bench.publish(0, 0.5)
    bench.tell("die")
    with pytest.raises(ServerLost, match="vLLM was lost while it answered"):
        bench.ask()
    assert "out of memory" in bench.heard.wait_for("server_lost")["log"]
    asyncio.run(bench.serving.sampler.ready())
    bench.heard.wait_for("server_restored")
    assert bench.ask().model == "policy@0"


def test_a_load_that_kills_the_server_is_made_again(open_bench: Open) -> None:
    bench = open_bench()
    bench.publish(0, 0.5)
    bench.tell("die_loading")
    bench.publish(1, 2.0)
    bench.heard.wait_for("server_restored")
    assert bench.ask().model == "policy@1"
    assert bench.ask("policy@0").model == "policy@0"


def test_restarts_that_lead_nowhere_are_bounded(open_bench: Open) -> None:
    bench = open_bench(max_restarts=2)
    bench.publish(0, 0.5)
    bench.tell("broken")
    os.kill(bench.pid, signal.SIGKILL)
    bench.heard.wait_for("server_lost", times=3)
    with pytest.raises(
        EngineError, match="started again 2 times, it answered nothing: its process ended"
    ) as lost:
        asyncio.run(bench.serving.sampler.ready())
    assert "ValueError: no such argument" in str(lost.value)
    with pytest.raises(ServerLost, match="started again 2 times"):
        bench.ask()
    with pytest.raises(EngineError, match="started again 2 times"):
        bench.serving.serve("policy@1", 1, 1.0, TOLD)


def test_a_server_that_never_starts_says_why(open_bench: Open, tmp_path: Path) -> None:
    (bench_folder := vllm_stub.Path(os.environ["STUB_DIR"]) / "broken").touch()
    bench = open_bench()
    with pytest.raises(
        EngineError, match="vLLM did not start: its process ended before it answered"
    ) as refused:
        bench.publish(0, 0.5)
    assert "ValueError: no such argument" in str(refused.value)
    assert bench_folder.exists()


def test_an_adapter_that_does_not_come_back_is_never_served(open_bench: Open) -> None:
    bench = open_bench(max_restarts=1)
    bench.publish(0, 0.5)
    bench.tell("bare")
    os.kill(bench.pid, signal.SIGKILL)
    bench.heard.wait_for("server_lost", times=2)
    with pytest.raises(EngineError, match="policy@0 does not answer as it did before vLLM was lost"):
        asyncio.run(bench.serving.sampler.ready())


def test_an_unwell_server_is_replaced(open_bench: Open) -> None:
    bench = open_bench()
    bench.publish(0, 0.5)
    first = bench.pid
    unwell = bench.tell("unhealthy")
    assert bench.heard.wait_for("server_lost")["cause"] == "it says that it is not well (status 500)"
    unwell.unlink()
    bench.heard.wait_for("server_restored")
    assert bench.pid != first
    assert bench.ask().model == "policy@0"


def test_a_version_that_the_server_forgot_is_put_back(open_bench: Open) -> None:
    bench = open_bench()
    bench.publish(0, 0.5)
    bench.serving._control.unload(bench.serving._server.url, "policy@0")
    with pytest.raises(ServerLost, match="no longer knows policy@0"):
        bench.ask()
    bench.heard.wait_for("server_restored")
    assert dict(bench.ask().top[0]) == pytest.approx(expected(0.5))


def test_an_answer_by_another_model_is_never_taken(open_bench: Open) -> None:
    bench = open_bench()
    bench.publish(0, 0.5)
    bench.tell("misname")
    with pytest.raises(EngineError, match="vLLM answered as 'base', not as 'policy@0', the one asked"):
        bench.ask()
    with pytest.raises(PublishError, match="not as 'policy@1'"):
        bench.serving.serve("policy@1", 1, 1.0, TOLD)


def test_a_refused_adapter_leaves_what_is_served_alone(
    open_bench: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = open_bench()
    bench.publish(0, 0.5)
    with monkeypatch.context() as patch:
        patch.setattr(module, "save_adapter", lambda adapter, path: path.mkdir())
        with pytest.raises(PublishError, match="vLLM refused to load policy@1: 400: no such adapter"):
            bench.publish(1, 2.0)
    assert bench.ask().model == "policy@0"
    bench.publish(1, 2.0)
    assert bench.ask().model == "policy@1"


def test_a_name_given_again_is_another_one_to_the_server(open_bench: Open) -> None:
    """Its prefix cache goes by the name; and the folder of the first may be deleted at any time."""
    bench = open_bench()
    bench.serving.serve("policy@1", 1, 0.5, TOLD)
    bench.serving.retire("policy@1")
    bench.serving.serve("policy@1", 1, 2.0, TOLD)
    assert dict(bench.ask("policy@1").top[0]) == pytest.approx(expected(2.0))
    url = bench.serving._server.url
    until(lambda: [m["id"] for m in bench.serving._control.models(url)] == ["base", "base@0", "policy@1.2"])
    os.kill(bench.pid, signal.SIGKILL)
    bench.heard.wait_for("server_restored")
    assert dict(bench.ask("policy@1").top[0]) == pytest.approx(expected(2.0))


def test_beside_adapters_the_base_is_asked_for_as_one(open_bench: Open) -> None:
    """Its own name may mean any adapter there, in a batch with others."""
    bench = open_bench()
    bench.serving.serve("early", 0, None, TOLD)
    bench.publish(0, 0.5)
    bench.serving.serve("late", 0, None, TOLD)
    remotes = {one.name: one.remote for one in bench.serving._roster.served()}
    assert remotes == {"base": "base@0", "early": "base@0", "policy@0": "policy@0", "late": "base@0"}
    for name in ("base", "early", "late"):
        assert dict(bench.ask(name).top[0]) == pytest.approx(expected(0))


def test_a_supervisor_that_fails_is_told_to_whoever_waits(open_bench: Open) -> None:
    bench = open_bench()
    bench.publish(0, 0.5)
    bench.serving._supervisor._chores = lambda: 1 / 0
    until(lambda: bench.serving._availability.given_up is not None)
    with pytest.raises(EngineError, match="nobody looks after vLLM any more: division by zero"):
        bench.serving.wait()


def test_closing_ends_the_server_and_leaves_nothing(open_bench: Open) -> None:
    bench = open_bench()
    bench.publish(0, 0.5)
    folder, pid = bench.serving._folder, bench.pid
    bench.serving.close()
    bench.serving.close()
    assert not folder.exists()
    until(lambda: not alive(pid))
    assert bench.serving.closed
    with pytest.raises(ServerLost, match="the engine is closed"):
        bench.ask()


def test_at_a_running_server_names_are_this_runs_own(open_bench: Open) -> None:
    host = open_bench()
    host.publish(0, 0.5)
    url = host.serving._server.url
    guest = open_bench(url=url)
    guest.publish(0, 2.0)
    assert dict(guest.ask().top[0]) == pytest.approx(expected(2.0))
    assert dict(host.ask().top[0]) == pytest.approx(expected(0.5))
    assert guest.ask().model == "policy@0"
    guest.serving.close()
    assert [model["id"] for model in host.serving._control.models(url)] == ["base", "policy@0", "base@0"]


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("closed", "takes no adapters; start it with --enable-lora"),
        ("raw", "gives log-probs before temperature; start it with --logprobs-mode processed_logprobs"),
    ],
)
def test_a_running_server_that_does_not_fit_is_refused(
    open_bench: Open, tmp_path: Path, fault: str, said: str
) -> None:
    host = open_bench().serving
    host.wait()
    (tmp_path / fault).touch()
    guest = open_bench(url=host._server.url)
    with pytest.raises(EngineError, match=said):
        guest.publish(0, 1.0)


def test_a_python_without_vllm_is_one_line(open_bench: Open, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere cannot be run .*; name a Python that has vLLM"):
        open_bench(python=tmp_path / "nowhere")
    with pytest.raises(InputError, match="has no vLLM; install vllm there, or name another Python"):
        open_bench(python=Path(sys.executable))


PARENT = """
import os, sys
from pathlib import Path
sys.path[:0] = {tests!r}
from test_vllm_serving import GROUND
from strop.engines.vllm.server import OwnServer
from strop.engines.vllm.settings import VllmSettings
server = OwnServer(VllmSettings(python=Path({python!r})), GROUND, Path({folder!r}))
server.start()
while not (Path({folder!r}) / "pid").exists():
    pass
os.kill(os.getpid(), 9)
"""


def test_a_server_does_not_outlive_a_parent_that_is_killed(tmp_path: Path) -> None:
    python = vllm_stub.install(tmp_path)
    code = PARENT.format(
        tests=[str(folder) for folder in Path(__file__).parents[:2]], python=str(python), folder=str(tmp_path)
    )
    environment = {**os.environ, "STUB_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, timeout=PATIENCE_S, check=False)
    assert done.returncode == -signal.SIGKILL
    pid = int((tmp_path / "pid").read_text())
    until(lambda: not alive(pid))


def alive(pid: int) -> bool:
    """Whether the process runs; one that only waits to be reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False

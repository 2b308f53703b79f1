"""The tool loop and process agents against a real gateway over HTTP; the model's words are scripted."""

import asyncio
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from strop.inference.chat import Chat
from strop.inference.gateway import Gateway
from strop.inference.scripted import ByteTokenizer, ScriptedSampler
from strop.inference.server import serve
from strop.rollout.agent import Attempt, MakeAttempt
from strop.rollout.environment import Label, Scenario
from strop.rollout.limits import Limits
from strop.rollout.process_agent import process_agent
from strop.rollout.runner import RolloutPlan, collect
from strop.rollout.tool_agent import environment_attempts, readable_arguments
from strop.trajectory.model import Message, Trajectory

KEY = "run-key"
TOOLS = (
    {
        "type": "function",
        "function": {
            "name": "add",
            "description": "Add to the total.",
            "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}},
        },
    },
)


@dataclass
class Adder:
    """A world with one number in it; done at ten."""

    messages: Sequence[Message] = ({"role": "user", "content": "reach ten"},)
    tools: Sequence[Mapping[str, Any]] = TOOLS
    total: int = 0
    executed: list[Any] = field(default_factory=list)
    closed: bool = False

    @property
    def done(self) -> bool:
        return self.total >= 10

    def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        self.executed.append((name, dict(arguments)))
        self.total += arguments["n"]
        return json.dumps({"total": self.total})

    def truth(self, messages: Sequence[Message]) -> Label:
        del messages
        return Label(value=float(self.total == 10))

    def close(self) -> None:
        self.closed = True


class SlowAdder(Adder):
    """Answers later, as a world behind a network does."""

    def call(self, name: str, arguments: Mapping[str, Any]) -> Any:
        async def later() -> str:
            await asyncio.sleep(0)
            return Adder.call(self, name, arguments)

        return later()


def tool_call(name: str, arguments: str) -> str:
    return f'<tool_call>{{"name": "{name}", "arguments": {arguments}}}</tool_call>'


@pytest.fixture
def world() -> Callable[..., tuple[Trajectory, ScriptedSampler]]:
    """Runs one attempt against a scripted model."""

    def run(
        replies: Sequence[str], attempt: MakeAttempt, limits: Limits
    ) -> tuple[Trajectory, ScriptedSampler]:
        waiting = list(replies)
        tokenizer = ByteTokenizer()
        sampler = ScriptedSampler(tokenizer, lambda _: waiting.pop(0) if len(waiting) > 1 else waiting[0])
        gateway = Gateway(sampler, Chat(tokenizer), api_key=KEY, max_context=4000)
        with serve(gateway.app) as server:
            gateway.root = server.url
            plan = RolloutPlan(sessions=gateway, attempt=attempt, part="p", limits=limits, api_key=KEY)
            groups = asyncio.run(collect([Scenario(scenario_id="s", data={"x": 1})], plan))
        return groups[0].trajectories[0], sampler

    return run


def attempt_in(environment: Adder, limits: Limits) -> MakeAttempt:
    return environment_attempts(lambda _scenario, _seed: environment, limits, seed=1, model="scripted")


ONE = Limits(attempts=1, deadline_s=30, max_turns=4, max_tokens=200)


@pytest.mark.parametrize("make", [Adder, SlowAdder])
def test_calls_are_executed_until_the_world_is_done(world: Any, make: type[Adder]) -> None:
    environment = make()
    got, _ = world(
        [tool_call("add", '{"n": 4}'), tool_call("add", '{"n": 6}')], attempt_in(environment, ONE), ONE
    )
    assert environment.executed == [("add", {"n": 4}), ("add", {"n": 6})]
    assert [m["role"] for m in got.messages] == ["user", "assistant", "tool", "assistant", "tool"]
    assert json.loads(got.messages[-1]["content"]) == {"total": 10}
    assert [t.message_index for t in got.turns] == [1, 3]
    assert (got.failure, got.truth, environment.closed) == (None, 1.0, True)


def test_a_reply_without_a_call_ends_it(world: Any) -> None:
    environment = Adder()
    got, _ = world([tool_call("add", '{"n": 4}'), "I give up."], attempt_in(environment, ONE), ONE)
    assert got.messages[-1]["content"] == "I give up."
    assert (got.truth, len(got.turns)) == (0.0, 2)


def test_turns_are_limited(world: Any) -> None:
    environment = Adder()
    got, _ = world([tool_call("add", '{"n": 1}')], attempt_in(environment, ONE), ONE)
    assert (environment.total, len(got.turns), got.failure) == (4, 4, None)


@pytest.mark.parametrize(
    ("reply", "complaint"),
    [
        (tool_call("multiply", '{"n": 1}'), "no tool multiply; there are: add"),
        (tool_call("add", '{"n": }'), "arguments are not JSON"),
        (tool_call("add", "[1]"), "arguments must be a JSON object"),
    ],
)
def test_a_wrong_call_gets_an_error_and_a_second_chance(world: Any, reply: str, complaint: str) -> None:
    environment = Adder()
    got, _ = world([reply, tool_call("add", '{"n": 10}')], attempt_in(environment, ONE), ONE)
    assert got.messages[2]["role"] == "tool"
    assert json.loads(got.messages[2]["content"])["error"].startswith(complaint)
    assert environment.executed == [("add", {"n": 10})]
    assert (got.failure, got.truth) == (None, 1.0)


def test_a_world_that_breaks_is_a_failure_with_its_turns(world: Any) -> None:
    got, _ = world([tool_call("add", '{"m": 1}')], attempt_in(Adder(), ONE), ONE)
    assert got.failure == "agent raised: KeyError: 'n'"
    assert len(got.turns) == 1


def test_a_model_that_is_not_served_is_a_failure(world: Any) -> None:
    make = environment_attempts(lambda *_: Adder(), ONE, seed=1, model="nobody")
    got, _ = world(["hello"], make, ONE)
    assert got.failure.startswith("agent raised: NotFoundError")


def test_worlds_and_requests_are_seeded_by_trajectory() -> None:
    seeds: list[int] = []

    def make(_scenario: Scenario, seed: int) -> Adder:
        seeds.append(seed)
        return Adder()

    for root in (1, 1, 2):
        attempts = environment_attempts(make, ONE, seed=root)
        for name in ("s/p/0", "s/p/1"):
            attempts(Scenario(scenario_id="s"), name)
    assert seeds[:2] == seeds[2:4]
    assert len(set(seeds)) == 4


def test_empty_arguments_are_an_empty_object() -> None:
    assert readable_arguments({"function": {"name": "add", "arguments": ""}}, TOOLS) == {}


def process(code: str) -> MakeAttempt:
    return lambda _scenario, _id: Attempt(agent=process_agent([sys.executable, "-c", code]))


CALLS_ONCE = """
import json, os, urllib.request
assert json.loads(os.environ["STROP_SCENARIO"]) == {"scenario_id": "s", "data": {"x": 1}}
body = {"model": "scripted", "messages": [{"role": "user", "content": "hi"}]}
urllib.request.urlopen(urllib.request.Request(
    os.environ["OPENAI_BASE_URL"] + "/chat/completions",
    json.dumps(body).encode(),
    {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]},
)).read()
"""


def test_an_agent_in_another_process_is_recorded(world: Any) -> None:
    got, _ = world(["hello"], process(CALLS_ONCE), ONE)
    assert got.failure is None
    assert got.messages == ({"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"})
    assert [t.message_index for t in got.turns] == [1]


def test_a_nonzero_exit_tells_the_last_line(world: Any) -> None:
    got, _ = world(["hello"], process(CALLS_ONCE + "raise ValueError('lost my way')"), ONE)
    assert got.failure == "agent raised: ProcessFailed: exit code 1: ValueError: lost my way"
    assert len(got.turns) == 1


def test_a_command_that_does_not_exist_is_a_failure(world: Any) -> None:
    got, _ = world(["hello"], lambda *_: Attempt(agent=process_agent(["/nonexistent/agent"])), ONE)
    assert got.failure.startswith("agent raised: FileNotFoundError")


def test_cancelled_as_at_its_deadline_the_process_and_its_children_are_killed(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    code = f"""
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
open("{pids}.new", "w").write(f"{{os.getpid()}} {{child.pid}}")
os.rename("{pids}.new", "{pids}")
time.sleep(600)
"""
    client: Any = SimpleNamespace(base_url="http://nowhere/v1", api_key="k")

    async def cancelled() -> None:
        agent = process_agent([sys.executable, "-c", code])(client, Scenario(scenario_id="s"))
        task = asyncio.ensure_future(agent)
        while not pids.exists():
            await asyncio.sleep(0.005)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancelled())
    for pid in map(int, pids.read_text().split()):
        # Nobody here waits for a grandchild: it is killed, and gone a moment later.
        while alive(pid):
            time.sleep(0.005)


def alive(pid: int) -> bool:
    """Whether a process still runs; a killed one that nobody has waited for does not."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in ("Z", "X")
    except FileNotFoundError:
        return False

"""The examples do what they say."""

import asyncio
import importlib.util
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def example(name: str) -> ModuleType:
    """An example as a module, without running it."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def as_trl_does(reward: Any, prompts: list[Any], completions: list[Any]) -> list[float]:
    """Call an async reward function on an event loop in another thread, with all that TRL passes."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    extra = {"completion_ids": [[1]] * len(prompts), "trainer_state": None, "log_extra": None}
    call = reward(prompts=prompts, completions=completions, **extra)
    found: list[float] = asyncio.run_coroutine_threadsafe(call, loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()
    return found


def batch(*texts: str) -> tuple[list[Any], list[Any]]:
    prompt = [{"role": "user", "content": "Whisper something."}]
    return [prompt] * len(texts), [[{"role": "assistant", "content": text}] for text in texts]


def test_the_reward_function_ranks_what_the_planted_judge_likes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STROP_JUDGE_BASE_URL", raising=False)
    module = example("trl_reward")
    given: list[list[float]] = []
    with module.chosen_judge() as judge:
        reward = module.judged_reward(judge, given)
        found = as_trl_does(reward, *batch("abcdefgh", "ABCDEFGH", "abcdefGH", "abCDEFGH"))
    assert given == [found]
    assert found[0] > found[2] > found[3] > found[1]
    assert all(0 <= number <= 1 for number in found)
    assert judge.ledger.totals()["outcomes"] == {"ok": 1}


def test_a_function_that_is_not_async_works_from_call_to_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STROP_JUDGE_BASE_URL", raising=False)
    module = example("trl_reward")
    with module.chosen_judge() as judge:
        reward = module.judged_reward(judge, [])
        first, second = (asyncio.run(reward(*batch("abc", "ABC", "aBC", "abC"))) for _ in range(2))
    assert first == second
    assert first[0] > first[1]


def test_the_environment_names_another_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("BASE_URL", "http://localhost:9/v1"), ("MODEL", "m"), ("API_KEY", "k")):
        monkeypatch.setenv(f"STROP_JUDGE_{name}", value)
    with example("trl_reward").chosen_judge() as judge:
        assert judge.ask.name.startswith("m at http://localhost:9/v1")


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("trl") is None, reason="trl is not installed")
def test_trl_trains_on_the_judges_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STROP_JUDGE_BASE_URL", raising=False)
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "trl_reward.py"), "--steps", "2"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "judge: 4 groups" in done.stdout
    assert [line.split(":")[0] for line in lines if line.startswith("step ")] == ["step 1", "step 2"]
    assert lines[-1] == "TRL trained on the judge's scores: yes"

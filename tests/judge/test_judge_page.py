"""Every snippet of docs/judge.md does what the page says, against a planted judge."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from strop.config import load_judge
from strop.judge import Failure
from strop.judge.planted import Planted, PlantedServer, Service

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/judge.md").read_text(encoding="utf-8")
ADDRESS = "https://judge.example/v1"


def snippets(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def quality(text: str) -> float | None:
    return 0.9 if "51" in text else 0.2


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[PlantedServer]:
    monkeypatch.setenv("JUDGE_KEY", "right")
    with PlantedServer(
        Planted(quality=quality), service=Service(model="some-model", api_key="right")
    ) as running:
        yield running


def done(containing: str, server: PlantedServer) -> dict[str, Any]:
    """The names that the one snippet with these words leaves behind."""
    (code,) = [code for code in snippets("python") if containing in code]
    names: dict[str, Any] = {"__name__": "snippet"}
    exec(code.replace(ADDRESS, server.base_url), names)
    return names


def test_a_group_is_judged(server: PlantedServer, capsys: pytest.CaptureFixture[str]) -> None:
    done("What is 17 times 3?", server)
    printed = re.fullmatch(r"({.*?}) (\S+) ({.*})", capsys.readouterr().out.strip())
    assert printed is not None
    scores, reliability, totals = printed.groups()
    assert eval(scores) == {"a": 0.9, "b": 0.2}
    assert float(reliability) == 1.0
    assert eval(totals)["tokens_in"] == server.served.prompt_tokens
    assert server.served.requests == 2


def test_any_function_can_answer(server: PlantedServer) -> None:
    judge = done("async def ask", server)["judge"]
    (code,) = [code for code in snippets("python") if "async def main" in code]
    made: dict[str, Any] = {}
    exec(code.partition("async def main")[0], made)
    attempts = [made["attempt"]("a", "51"), made["attempt"]("b", "41")]
    group = made["Group"](group_id="sum", scenario_id="sum", trajectories=attempts)
    assert asyncio.run(judge(group)).failure == Failure.NO_JSON
    # Two attempts have two orders, and each is asked for once more.
    assert judge.ledger.cost.calls == 4


def test_it_is_a_reward_function(server: PlantedServer) -> None:
    reward = done("strop.judge.rewards", server)["reward"]
    said = ["51", *"abcdefg"]
    given = asyncio.run(reward(prompts=["What is 17 times 3?"] * 8, completions=said))
    assert given == pytest.approx([0.9] + [0.2] * 7)


def test_the_pure_functions(server: PlantedServer, capsys: pytest.CaptureFixture[str]) -> None:
    done("render_prompt", server)
    assert sorted(eval(capsys.readouterr().out).values()) == [0.0, 1.0]
    assert server.served.requests == 0


def test_there_is_no_snippet_that_is_not_run() -> None:
    assert len(snippets("python")) == 4


def test_the_judge_file(tmp_path: Path) -> None:
    (text,) = snippets("toml")
    (tmp_path / "judge.toml").write_text(text)
    judge = load_judge(tmp_path / "judge.toml")
    assert judge.prices["some-model"].cached_input == 0.025


def test_every_failure_class_is_explained() -> None:
    rows = [line.split("|")[1] for line in PAGE.splitlines() if line.startswith("| `")]
    assert sorted(re.findall(r"`(\w+)`", "".join(rows))) == sorted(Failure)


def test_links_lead_somewhere() -> None:
    targets = [target.partition("#")[0] for target in re.findall(r"\]\(([^)]+)\)", PAGE)]
    assert [target for target in targets if not (ROOT / "docs" / target).exists()] == []

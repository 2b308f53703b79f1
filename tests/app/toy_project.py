"""A user's project of the smallest kind, and a judge behind an OpenAI-compatible address."""

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from strop.inference.server import serve

KEY = "judge-key"
_ATTEMPT = re.compile(r"<attempt (\d+) (\w+)>\n(.*?)\n</attempt \2>", re.DOTALL)

AGENT = """
async def run(client, scenario):
    messages = [{"role": "user", "content": scenario.data["word"]}]
    made = await client.chat.completions.create(model="policy", messages=messages, max_tokens=12)
    return [*messages, {"role": "assistant", "content": made.choices[0].message.content or ""}]


def truth(scenario, messages):
    return float(any(vowel in messages[-1]["content"] for vowel in "aeiou"))
"""

RUN = """
[model]
name = {model}
dtype = "float32"
device = "cpu"
max_length = 256

[lora]
rank = 4
alpha = 8.0

[rollout]
agent = "agent.py:run"
scenarios = "scenarios.jsonl"
attempts = 3
groups_per_step = 2
max_tokens = 12
deadline_s = 200
slots = 8

[judge]
base_url = {judge}
model = "letters"
api_key_env = "TOY_JUDGE_KEY"
timeout_s = 200
max_failures_in_a_row = 2

[training]
steps = 2
learning_rate = 1e-2

[evaluation]
heldout = 2
judged_groups = 2
judged_attempts = 2
"""


@dataclass
class LetterJudge:
    """Scores an attempt by its share of the letter a. Wants KEY; counts what it was asked.

    After `good` answers it breaks with the HTTP status `broken`, or, with `hangs`, answers no more.
    """

    url: str = ""
    asked: int = 0
    refused: int = 0
    good: int = 1 << 30
    hangs: bool = False
    broken: int = 400
    on_asked: Callable[[], None] = lambda: None

    async def answer(self, request: Request) -> JSONResponse:
        if request.headers.get("authorization") != f"Bearer {KEY}":
            self.refused += 1
            return JSONResponse({"error": {"message": "wrong key"}}, status_code=401)
        self.asked += 1
        self.on_asked()
        if self.asked > self.good:
            await asyncio.sleep(600 if self.hangs else 0)
            return JSONResponse({"error": {"message": "down"}}, status_code=self.broken)
        prompt = (await request.json())["messages"][1]["content"]
        found = _ATTEMPT.findall(prompt)
        scores = [
            {"trajectory_id": place, "explanation": f"{body.count('a')} of it", "score": share(said(body))}
            for place, _, body in found
        ]
        return JSONResponse(completion(json.dumps({f"scores_{found[0][1]}": scores})))


def said(body: str) -> str:
    """The words of an attempt, without the role that the judge is shown before them."""
    return body.partition(":")[2]


def share(text: str) -> float:
    return min(1.0, text.count("a") / max(1, len(text)))


def completion(text: str) -> dict[str, object]:
    message = {"role": "assistant", "content": text}
    return {
        "id": "judge",
        "object": "chat.completion",
        "created": 0,
        "model": "letters",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
    }


@contextmanager
def letter_judge() -> Iterator[LetterJudge]:
    judge = LetterJudge()
    app = Starlette(routes=[Route("/v1/chat/completions", judge.answer, methods=["POST"])])
    with serve(app) as server:
        judge.url = f"{server.url}/v1"
        yield judge


def write_project(folder: Path, model: Path, judge_url: str, agent: str = AGENT) -> Path:
    """agent.py, scenarios.jsonl and run.toml; the path of the last."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "agent.py").write_text(agent, encoding="utf-8")
    words = ("cat", "dog", "sea", "sun", "hat", "map", "ink", "oak")
    lines = [json.dumps({"scenario_id": f"word-{i}", "data": {"word": word}}) for i, word in enumerate(words)]
    (folder / "scenarios.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    run = folder / "run.toml"
    run.write_text(RUN.format(model=json.dumps(str(model)), judge=json.dumps(judge_url)), encoding="utf-8")
    return run

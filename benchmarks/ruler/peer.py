"""The peer's process: scores groups with openpipe-art's own `ruler_score_group`. Needs no strop.

Runs under the Python of an environment that holds openpipe-art (see benchmarks/judge.py). Reads one JSON
job a line from standard input and writes one JSON answer a line:

    {"groups": [[[message, ...], ...], ...], "base_url": "http://...", "at_once": 32, "how": "ask"}
    {"scores": [[0.5, ...] or null, ...], "errors": {"ValueError": 1}, "seconds": 1.2, "cpu_seconds": 0.9}

`how` "ask" sends to the judge at `base_url`; "record" does too, keeps the replies and adds "prompts", the
messages sent for every group. "replay" answers from what was kept, without HTTP: what is left is RULER's
own time. "show" gives "prompts" and sends nothing.
"""

import asyncio
import importlib
import json
import sys
import time
from collections import Counter
from typing import Any

import art
from art.rewards import ruler_score_group

RULER: Any = importlib.import_module("art.rewards.ruler")
COMPLETE = RULER.acompletion
MODEL = "openai/planted"


class Calls:
    """Takes the place of the completion call: notes what is sent, keeps what comes back."""

    def __init__(self) -> None:
        self.kept: dict[str, Any] = {}
        self.sent: list[Any] = []

    async def record(self, **request: Any) -> Any:
        self.sent.append(request["messages"])
        reply = await COMPLETE(**request)
        self.kept[request["messages"][1]["content"]] = reply
        return reply

    async def replay(self, **request: Any) -> Any:
        return self.kept[request["messages"][1]["content"]]

    async def show(self, **request: Any) -> Any:
        self.sent.append(request["messages"])
        raise LookupError("nothing is sent")


def group_of(attempts: list[Any]) -> art.TrajectoryGroup:
    return art.TrajectoryGroup([art.Trajectory(messages_and_choices=messages) for messages in attempts])


async def score(groups: list[art.TrajectoryGroup], base_url: str, at_once: int) -> tuple[list[Any], Any]:
    """Scores of every group, None where RULER gave none, and the names of the exceptions."""
    slots, errors = asyncio.Semaphore(at_once), Counter[str]()
    where = {"api_base": base_url, "api_key": "planted"}

    async def one(group: art.TrajectoryGroup) -> list[float] | None:
        async with slots:
            try:
                judged = await ruler_score_group(group, MODEL, extra_litellm_params=where)
            except Exception as error:  # noqa: BLE001 whatever it raises, the group has no scores
                errors[type(error).__name__] += 1
                return None
        return [trajectory.reward for trajectory in judged.trajectories]

    return await asyncio.gather(*map(one, groups)), errors


async def run(job: dict[str, Any], calls: Calls) -> dict[str, Any]:
    groups = [group_of(attempts) for attempts in job["groups"]]
    calls.sent = []
    RULER.acompletion = COMPLETE if job["how"] == "ask" else getattr(calls, job["how"])
    began, cpu = time.perf_counter(), time.process_time()
    scores, errors = await score(groups, job["base_url"], job["at_once"])
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    return {
        "scores": scores,
        "errors": errors,
        "seconds": seconds,
        "cpu_seconds": cpu,
        "prompts": calls.sent,
    }


async def serve(answers: Any) -> None:
    calls = Calls()
    for line in sys.stdin:
        answers.write(json.dumps(await run(json.loads(line), calls)) + "\n")
        answers.flush()


if __name__ == "__main__":
    # RULER prints to standard output, which belongs to the answers.
    channel, sys.stdout = sys.stdout, sys.stderr
    asyncio.run(serve(channel))

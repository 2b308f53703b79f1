"""What it saves to judge a group while others still roll out: wall time of a step's rollouts and judging.

    python -m benchmarks.overlap [--json] [--pairs 5] [--latency 0.4]

8 groups of 6 attempts whose lengths are drawn once and the same for both sides (log-normal, median 0.4 s;
nothing is decoded: an attempt waits), and a planted judge behind HTTP that takes `--latency` seconds a call,
at most 8 at once, two orders a group. The other side is the same judge that waits for all groups; ours begins
with each group as it ends. The ratio printed is the other's seconds over ours.
"""

import argparse
import asyncio
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from benchmarks import Outcome
from strop.app.judging import Bench
from strop.app.step_judging import StepJudging
from strop.app.waits import Waits
from strop.judge import Endpoint, EndpointSettings, Judge, JudgeSettings
from strop.judge.planted import Faults, Planted, PlantedServer
from strop.rollout.agent import Attempt
from strop.rollout.environment import Scenario
from strop.rollout.limits import Limits
from strop.rollout.runner import RolloutPlan, collect
from strop.seeds import generator
from strop.trajectory.model import Message, Turn

GROUPS, ATTEMPTS, AT_ONCE = 8, 6, 8
MEDIAN_S, SPREAD = 0.4, 0.6


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """The one recorded call of an attempt."""

    messages: Sequence[Message]
    reply: Message
    turn: Turn
    tools: Sequence[Mapping[str, Any]] = ()


class Sessions:
    """Sessions that were all answered at once, each with a reply of its own quality."""

    def open(self, keys: Sequence[str], temperature: float | None = None) -> Mapping[str, str]:
        """Any address: nobody asks."""
        del temperature
        return dict.fromkeys(keys, "http://unasked.invalid/v1")

    def lost(self, key: str) -> str | None:
        """None was lost."""
        del key
        return None

    def waits(self, key: str) -> bool:
        """There is a place for everyone."""
        del key
        return False

    async def ready(self) -> None:
        """Always."""

    def take(self, key: str) -> Sequence[Call]:
        """One call; its text marks its quality for the planted judge."""
        quality = generator(0, "quality", key).random()
        turn = Turn(
            prompt_ids=(1,), sampled_ids=(2,), logprobs=(-1.0,), finish_reason="stop", message_index=1
        )
        ask = {"role": "user", "content": "Please."}
        return [
            Call(messages=[ask], reply={"role": "assistant", "content": f"quality={quality:.2f}"}, turn=turn)
        ]


def attempt(_scenario: Scenario, key: str) -> Attempt:
    """An attempt that takes as long as was drawn for it."""
    seconds = MEDIAN_S * math.exp(SPREAD * generator(0, "length", key).standard_normal())

    async def waits(_client: object, _scenario: Scenario, /) -> None:
        await asyncio.sleep(seconds)

    return Attempt(agent=waits)


async def step(server: PlantedServer, overlap: bool) -> tuple[float, dict[str, dict[str, float]]]:
    """Seconds of one step's rollouts and judging, and its scores."""
    endpoint = Endpoint(server.base_url, "key", "planted", settings=EndpointSettings())
    judge = Judge(endpoint, JudgeSettings(concurrency=AT_ONCE))
    judging = StepJudging(Bench(judge=judge, endpoint=endpoint, waits=Waits()), "step")
    plan = RolloutPlan(sessions=Sessions(), attempt=attempt, part="step", limits=Limits(attempts=ATTEMPTS))
    if overlap:
        plan = replace(plan, on_group=lambda group: judging.begin([group]))
    began = time.perf_counter()
    groups = await collect([Scenario(scenario_id=f"s{n}") for n in range(GROUPS)], plan)
    judging.begin(groups)
    await judging.ended()
    seconds = time.perf_counter() - began
    judging.raise_error()
    await judge.close()
    return seconds, {name: dict(verdict.scores or {}) for name, verdict in judging.verdicts.items()}


async def raced(latency: float, pairs: int) -> Outcome:
    """Both in turns; a first pair is not counted."""
    with PlantedServer(Planted(), Faults(latency_s=latency)) as server:
        found = [(await step(server, True), await step(server, False)) for _ in range(pairs + 1)]
    same = all(ours[1] == theirs[1] for ours, theirs in found)
    return Outcome(
        name="overlap",
        ours=[ours[0] for ours, _ in found[1:]],
        theirs=[theirs[0] for _, theirs in found[1:]],
        limit=1.0,
        details={"latency_s": latency, "groups": GROUPS, "attempts": ATTEMPTS, "same_scores": same},
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object only")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--latency", type=float, default=0.4)
    options = parser.parse_args()
    found = asyncio.run(raced(options.latency, options.pairs))
    if options.json:
        print(found.to_json())
        return
    same = "the same" if found.details["same_scores"] else "DIFFERENT"
    print(
        f"a step of {GROUPS} groups: {median(found.ours):.2f} s overlapped, {median(found.theirs):.2f} s one "
        f"after the other, ratio {found.ratio:.2f}; scores {same}"
    )


if __name__ == "__main__":
    main()

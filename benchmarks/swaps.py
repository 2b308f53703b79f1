"""A LoRA in a vLLM is swapped under a steady stream of requests: who answered, what was dropped, how slow.

    python -m benchmarks.swaps --vllm-python VLLM/bin/python [--json] [--swaps 20] [--workers 4] [--rest 8]
        [--model smollm2]

Workers ask the policy through the gateway without pause, each as soon as it was answered. Each round lets
`--rest` requests end undisturbed, takes an optimizer step on some of them with advantages drawn at random,
and publishes the new adapter: written, loaded into vLLM under a name of its own, proved, traffic moved, the
old one unloaded after its last request. Afterwards the learner scores every answer's token ids under every
version there was, the one before training included. An answer is wrong where its log-probs are nearest to
another version than the one that the answer names. All in float32, so that versions are far apart beside
rounding.

Latencies are of whole requests: "swap" of those in flight during a publication, "rest" of those that met
neither a publication nor a training step, which takes the processor from the server here as it would not
on a machine with a GPU. `--vllm-python` may be given as STROP_VLLM_PYTHON. There is no peer; the ratio is
none, and `ours` are the seconds of a publication. Ten minutes on two cores.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import Outcome, check, check_line
from benchmarks.sampling.vllm import vllm_version
from benchmarks.swapping.naming import Naming, distances, naming
from benchmarks.swapping.stream import Asked, Stream
from strop.engine import Engine, Published
from strop.engines.opening import EmbeddedEngine, prepare, vllm
from strop.errors import InputError
from strop.seeds import generator
from strop.stats.intervals import wilson
from strop.trajectory.tokens import Row, rows

TOKENS, MAX_LENGTH, TRAINED = 8, 256, 6
RATE = 3e-4
OTHER_GAP = 1e-3
"""The bound on rounding in float32: versions nearer to each other than this would prove nothing."""
QUESTION = "My parcel has not come. What can you do for me?"

Window = tuple[float, float]


@dataclass(slots=True)
class Log:
    """What happened when: publications and training steps as windows of perf_counter."""

    publications: list[Window] = field(default_factory=list)
    steps: list[Window] = field(default_factory=list)
    published: list[Published] = field(default_factory=list)


def opened(python: str, model: str, workers: int) -> EmbeddedEngine:
    """The engine that learns here while that vLLM serves."""
    prepare()
    from strop.engines.local.engine import LocalConfig
    from strop.engines.local.learner import LearnerSettings
    from strop.engines.vllm.settings import VllmSettings

    learner = LearnerSettings(learning_rate=RATE)
    config = LocalConfig(
        model=model, dtype="float32", device="cpu", learner=learner, slots=workers, max_length=MAX_LENGTH
    )
    return vllm(config, VllmSettings(python=Path(python)))


def swapped(engine: Engine, stream: Stream, count: int, rest: int, folder: Path) -> Log:
    """`count` rounds; the state of every version is kept in `folder`, by its number."""
    log, rng = Log(), generator(0, "advantages")
    engine.save(folder / "0")
    for _ in range(count):
        answered = stream.wait_for(rest)
        log.steps.append(_stepped(engine, answered, rng))
        began = time.perf_counter()
        published = engine.publish()
        log.publications.append((began, time.perf_counter()))
        log.published.append(published)
        engine.save(folder / str(published.version))
    stream.wait_for(rest)
    return log


def _stepped(engine: Engine, answered: Sequence[Asked], rng: np.random.Generator) -> Window:
    fresh = [
        row(one) for one in answered if one.turn and one.turn.policy_version == engine.info.policy_version
    ]
    began = time.perf_counter()
    trained = fresh[-TRAINED:]
    engine.accumulate(trained, rng.standard_normal(len(trained)).tolist())
    engine.step()
    return began, time.perf_counter()


def row(asked: Asked) -> Row:
    """An answer as the learner reads it."""
    assert asked.turn is not None
    return rows("swaps", [asked.turn])[0]


def held_against_all(engine: Engine, answered: Sequence[Asked], versions: int, folder: Path) -> Naming:
    """Score every answer under every version, and see which one it is nearest to."""
    read = [row(one) for one in answered]
    scored = []
    for version in range(versions):
        engine.load(folder / str(version))
        scored.append(engine.logprobs(read, "policy"))
    served = [one.logprobs[one.mask] for one in read]
    return naming(distances(served, scored), [_named(one) for one in answered])


def _named(asked: Asked) -> int:
    """The version in the name that the answer itself gives."""
    assert asked.model is not None
    return int(asked.model.rpartition("@")[2])


def latencies(asked: Sequence[Asked], log: Log) -> dict[str, dict[str, float]]:
    """Median, 99th percentile and number of requests, at rest and during a swap."""
    swap = [one for one in asked if any(_meets(one, window) for window in log.publications)]
    rest = [one for one in asked if not any(_meets(one, window) for window in log.publications + log.steps)]
    return {name: _percentiles(found) for name, found in (("rest", rest), ("swap", swap))}


def _meets(asked: Asked, window: Window) -> bool:
    return asked.began < window[1] and window[0] < asked.ended


def _percentiles(asked: Sequence[Asked]) -> dict[str, float]:
    seconds = [one.ended - one.began for one in asked]
    if not seconds:
        return {"n": 0}
    p50, p99 = np.quantile(seconds, [0.5, 0.99], method="higher").tolist()
    return {"p50": round(p50, 3), "p99": round(p99, 3), "n": len(seconds)}


def measured(python: str, model: str, swaps: int, workers: int, rest: int) -> Outcome:
    """All swaps on one server."""
    version = vllm_version(python)
    body: dict[str, Any] = {"model": "policy", "max_tokens": TOKENS, "temperature": 1.0}
    body["messages"] = [{"role": "user", "content": QUESTION}]
    with tempfile.TemporaryDirectory() as name:
        engine = opened(python, model, workers)
        try:
            with Stream(engine, workers, body) as stream:
                log = swapped(engine, stream, swaps, rest, Path(name))
            answered = [one for one in stream.asked if one.turn is not None]
            found = held_against_all(engine, answered, swaps + 1, Path(name))
        finally:
            engine.close()
    return outcome(stream.asked, found, log, {"model": model, "vllm": version, "workers": workers})


def outcome(asked: Sequence[Asked], found: Naming, log: Log, settings: dict[str, Any]) -> Outcome:
    """What is printed."""
    dropped = sum(one.turn is None for one in asked)
    seconds = [one.seconds for one in log.published]
    wrong = wilson(len(found.wrong), found.answers)
    return Outcome(
        name="swaps",
        ours=seconds,
        theirs=[],
        limit=0.0,
        details={
            **settings,
            "swaps": len(seconds),
            "checks": [
                check("answers by another version than the one they name", len(found.wrong), 0),
                check("requests dropped", dropped, 0),
                check("nats to the nearest other version", found.other_gap, OTHER_GAP, least=True),
            ],
            "answers": found.answers,
            "wrong_share": {"estimate": wrong.estimate, "low": wrong.low, "high": wrong.high, "n": wrong.n},
            "nats_to_named_version": found.named_gap,
            "latency_s": latencies(asked, log),
            "publish_s": {"median": round(statistics.median(seconds), 2), "most": round(max(seconds), 2)},
            "probe_gap": max(one.probe_gap for one in log.published),
            "probe_bound": log.published[0].probe_bound,
        },
    )


def report(found: Outcome) -> str:
    """The checks, then what was measured."""
    said, seconds = found.details, found.details["publish_s"]
    lines = [check_line(one) for one in said["checks"]]
    near = f"at most {said['nats_to_named_version']:.2g} nats from the version they name"
    lines.append(f"{said['answers']} answers over {said['swaps']} swaps, {near}")
    for name, of in said["latency_s"].items():
        lines.append(f"latency at {name}: p50 {of.get('p50')} s, p99 {of.get('p99')} s, n={of['n']}")
    lines.append(f"a publication: {seconds['median']} s, at most {seconds['most']} s, with its proof")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--vllm-python", default=os.environ.get("STROP_VLLM_PYTHON"))
    parser.add_argument("--json", action="store_true", help="print one JSON object only")
    parser.add_argument("--swaps", type=int, default=20)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--rest", type=int, default=8)
    parser.add_argument("--model", default="smollm2")
    options = parser.parse_args()
    try:
        if options.vllm_python is None:
            raise InputError("--vllm-python: name a Python that has vLLM (python -m benchmarks.rollouts -h)")
        found = measured(options.vllm_python, options.model, options.swaps, options.workers, options.rest)
    except InputError as error:
        sys.exit(f"swaps: {error}")
    print(found.to_json() if options.json else report(found))


if __name__ == "__main__":
    main()

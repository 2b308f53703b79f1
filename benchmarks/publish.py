"""From the optimizer step to a policy that is served and proved: seconds, on the embedded model.

    python -m benchmarks.publish [--json] [--times 7] [--model smollm2] [--dtype auto]

Each time: a gradient over a few rows, and a first reading of the places where the probe may ask, both
before the clock starts; then the optimizer step, those places read again, the adapter folded into a copy
that is served under a name of its own, the probe that holds the copy's log-probs against the learner's,
traffic moved, the old copy retired.
What is printed is the median; a first time is not counted. There is no peer: the limit is one second.
"""

import argparse
import statistics
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks import Outcome
from strop.engine import Engine
from strop.engines.opening import prepare
from strop.trajectory.tokens import Row

LIMIT_S = 1.0
ROWS, PROMPT, SAMPLED = 8, 64, 32
RATE = 1e-3


def rows_of(vocabulary: int) -> list[Row]:
    """Rows of random tokens behind one prompt."""
    rng = np.random.default_rng(0)
    prompt = rng.integers(10, vocabulary, PROMPT)
    mask = np.arange(PROMPT + SAMPLED) >= PROMPT
    return [
        Row(
            trajectory_id=f"row-{number}",
            ids=np.concatenate([prompt, rng.integers(10, vocabulary, SAMPLED)]),
            mask=mask,
            logprobs=np.where(mask, -8.0, 0.0),
            turn_of=np.where(mask, 0, -1),
        )
        for number in range(ROWS)
    ]


def once(engine: Engine, rows: Sequence[Row]) -> dict[str, float]:
    """One update and its publication; seconds of both, and what the probe saw."""
    engine.accumulate(rows, [1.0 if number % 2 else -1.0 for number in range(len(rows))])
    began, used = time.perf_counter(), time.process_time()
    engine.step()
    stepped = time.perf_counter()
    published = engine.publish()
    ended = time.perf_counter()
    assert published.probe_gap <= published.probe_bound
    return {
        "step": stepped - began,
        "publish": ended - stepped,
        "published_seconds": published.seconds,
        "whole": ended - began,
        "cpu": time.process_time() - used,
        "probe_gap": published.probe_gap,
        "probe_bound": published.probe_bound,
        "probe_separation": published.probe_separation or 0.0,
    }


def measured(model: str, dtype: str, times: int) -> Outcome:
    """All times on one engine."""
    prepare()
    from strop.engines.local.engine import LocalConfig, LocalEngine
    from strop.engines.local.learner import LearnerSettings

    config: Any = {"model": model, "dtype": dtype, "learner": LearnerSettings(learning_rate=RATE)}
    engine = LocalEngine(LocalConfig(**config))
    try:
        rows, info = rows_of(engine.info.vocab_size), engine.info
        found = [once(engine, rows) for _ in range(times + 1)][1:]
    finally:
        engine.close()
    medians = {name: round(statistics.median(one[name] for one in found), 4) for name in found[0]}
    return Outcome(
        name="publish",
        ours=[one["whole"] for one in found],
        theirs=[],
        limit=LIMIT_S,
        details={"model": model, "dtype": info.dtype, "medians": medians, "met": medians["whole"] < LIMIT_S},
    )


def report(found: Outcome) -> str:
    """Two lines: the whole against its limit, and its parts."""
    medians = found.details["medians"]
    return (
        f"{'met   ' if found.details['met'] else 'NOT   '} from optimizer step to served and proved: "
        f"{medians['whole']:.3f} s (limit {found.limit:g} s), {found.details['dtype']}\n"
        f"step {medians['step']:.3f} s, publish {medians['publish']:.3f} s, {medians['cpu']:.3f} "
        f"processor seconds; probe {medians['probe_gap']:.2g} "
        f"nats of {medians['probe_bound']:g}, the version before is {medians['probe_separation']:.2g} away"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object only")
    parser.add_argument("--times", type=int, default=7)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--dtype", default="auto", choices=["auto", "float32", "bfloat16"])
    options = parser.parse_args()
    found = measured(options.model, options.dtype, options.times)
    print(found.to_json() if options.json else report(found))


if __name__ == "__main__":
    main()

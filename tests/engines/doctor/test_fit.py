"""Verdicts, and what to change where memory is short."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from embedded_plan import embedded_plan
from strop.engines.doctor.fit import VLLM_PROCESSES, Fit, cannot_fit, fits, verdict
from strop.engines.doctor.machine import Accelerator, Machine
from strop.engines.doctor.plan import Plan
from strop.engines.doctor.shape import embedded_shape

GB = 10**9


def machine(memory: float = 32, **changes: Any) -> Machine:
    size = round(memory * GB)
    usual = Machine(
        python="3.12", system="Linux", cores=2, memory=size, physical=size, free=size, bfloat16=True
    )
    return replace(usual, **changes)


def plan(**changes: Any) -> Plan:
    return embedded_plan(
        **{"rank": 16, "nodes": 4096, "slots": 48, "sessions": 48, "max_length": 2048, **changes}
    )


def only(found: list[Fit]) -> Fit:
    (fit,) = found
    return fit


def test_a_verdict() -> None:
    assert verdict(84, 100) == "fits"
    assert verdict(86, 100) == "tight"
    assert verdict(100, 100) == "tight"
    assert verdict(101, 100) == "does not fit"
    assert verdict(1, None) == "unknown"


def test_all_that_fits_needs_no_advice() -> None:
    fit = only(fits(plan(), machine(), {}))
    assert (fit.where, fit.verdict, fit.advice, fit.capacity) == ("memory", "fits", "", 32 * GB)


def test_the_key_that_is_enough_is_named() -> None:
    """Keys and values are by far the most: 48 conversations of 2048 tokens at 46 KB."""
    fit = only(fits(plan(nodes=512), machine(6), {}))
    assert fit.verdict == "does not fit"
    assert fit.advice == "set rollout.slots = 24"
    assert only(fits(plan(nodes=512, slots=24), machine(6), {})).verdict == "fits"


def test_as_many_keys_as_it_takes() -> None:
    fit = only(fits(plan(), machine(3.2), {}))
    assert fit.advice.startswith("set ")
    assert "training.micro_batch_tokens" in fit.advice
    assert "rollout.slots = " in fit.advice


def test_no_setting_helps() -> None:
    assert only(fits(plan(), machine(1), {})).advice.startswith("take a smaller model")


def test_only_a_wide_margin_is_worth_a_warning() -> None:
    needed = only(fits(plan(), machine(), {})).total / GB
    assert cannot_fit(plan(), machine(needed * 0.59), {}) is not None
    assert cannot_fit(plan(), machine(needed * 0.61), {}) is None


def vllm(*args: str, **changes: Any) -> Plan:
    return plan(serves=False, judge=False, vllm_args=args, vllm_python=Path("python"), **changes)


def part(fit: Fit, name: str) -> int:
    return sum(each.bytes for each in fit.parts if each.part == name)


@pytest.mark.parametrize(
    ("args", "environ", "cache"),
    [
        ((), {"VLLM_CPU_KVCACHE_SPACE": "2"}, 2 << 30),
        (("--kv-cache-memory-bytes", "3G"), {}, 3 * GB),
        (("--kv-cache-memory-bytes=500000000",), {}, 5 * 10**8),
        (("--kv-cache-memory-bytes=1GiB",), {}, 1 << 30),
    ],
)
def test_vllm_takes_the_cache_that_it_is_told(
    args: tuple[str, ...], environ: dict[str, str], cache: int
) -> None:
    fit = only(fits(vllm(*args), machine(), environ))
    assert part(fit, "vLLM's cache") == cache
    assert part(fit, "vLLM") == VLLM_PROCESSES + 4 * embedded_shape().parameters
    assert fit.verdict == "fits"


def test_vllm_on_a_processor_is_told_a_cache_for_all_slots() -> None:
    """12 conversations of 1024 tokens are 8 blocks of 128 each, and one that vLLM keeps; 30 layers of 3 heads
    of 64 keys and as many values, 4 bytes each."""
    fit = only(fits(vllm(slots=12, max_length=1024), machine(16), {}))
    assert part(fit, "vLLM's cache") == (12 * 8 + 1) * 128 * 30 * 2 * 192 * 4


def test_vllm_that_is_told_a_share_takes_it_of_everything() -> None:
    """Of the machine's memory, not of the container's: it does not know the limit."""
    fit = only(fits(vllm("--gpu-memory-utilization", "0.9"), machine(16, physical=64 * GB), {}))
    assert part(fit, "vLLM") == round(0.9 * 64 * GB)
    assert fit.verdict == "does not fit"
    assert "--kv-cache-memory-bytes" in fit.advice
    told = only(fits(vllm("--gpu-memory-utilization", "0.1"), machine(16, physical=64 * GB), {}))
    assert part(told, "vLLM") == round(0.1 * 64 * GB)


def test_on_a_device_the_model_lies_there() -> None:
    card = Accelerator(name="Card", memory=80 * GB, free=79 * GB)
    host, device = fits(plan(device="cuda", number="bfloat16"), machine(cuda=(card,)), {})
    assert (host.where, device.where) == ("memory", "cuda:0, Card")
    assert part(device, "weights") == 2 * embedded_shape().parameters
    assert part(host, "weights") == 0
    assert device.verdict == "fits"


def test_a_device_that_is_not_here_is_unknown() -> None:
    _, device = fits(plan(device="cuda"), machine(), {})
    assert device.verdict == "unknown"

"""The command line and environment of a vLLM server. Pure."""

from collections.abc import Mapping

from strop.engines.serving import Ground
from strop.engines.vllm.settings import VllmSettings

BASE = "base"
MODULE = "vllm.entrypoints.openai.api_server"
HOST = "127.0.0.1"
RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""The ranks that vLLM can make room for."""
LORAS = 5
"""Adapters in one batch: the policy, the version before it, a judge, the base, and one to spare."""
ON_A_PROCESSOR = ("--enforce-eager", "--no-enable-chunked-prefill")
"""A request with a seed, whose prompt is computed in pieces, ends a server on a processor (0.32): it winds
back a generator that cannot be wound back."""
BLOCK = 128
"""Tokens of a block of the cache, on a processor."""
CACHE_SIZE, SHARE = "--kv-cache-memory-bytes", "--gpu-memory-utilization"
OURS = ("GOMP_SPINCOUNT", "ONEDNN_PRIMITIVE_CACHE_CAPACITY", "TOKENIZERS_PARALLELISM")


def command(settings: VllmSettings, ground: Ground, port: int, memory: int | None) -> list[str]:
    """What starts the server: the bare model as "base", with room for adapters.

    `memory` is the machine's, in bytes.
    """
    return [
        *(str(settings.python), "-m", MODULE),
        *("--model", str(ground.source), "--served-model-name", BASE),
        *("--host", HOST, "--port", str(port)),
        *("--dtype", ground.dtype, "--max-model-len", str(ground.max_length)),
        *("--max-num-seqs", str(ground.slots)),
        *("--enable-lora", "--max-lora-rank", str(room_for(ground.rank)), "--max-loras", str(LORAS)),
        # Without these two, log-probs are of no distribution that anything was drawn from, and a model's own
        # generation_config.json cuts that distribution unseen.
        *("--logprobs-mode", "processed_logprobs", "--generation-config", "vllm"),
        *(ON_A_PROCESSOR if ground.device == "cpu" else ()),
        "--disable-uvicorn-access-log",
        *_cache(settings, ground, memory),
        *settings.args,
    ]


def cache_bytes(slots: int, max_length: int, token_bytes: int, memory: int | None) -> int:
    """Keys and values of `slots` conversations at their longest, or of what fits in a quarter of `memory`.

    At least of one, without which vLLM does not start: it lets the others wait.
    """
    one = -(-max_length // BLOCK)
    within = slots if memory is None else memory // 4 // (one * BLOCK * token_bytes)
    # One block more: vLLM keeps one for itself.
    return (one * max(1, min(slots, within)) + 1) * BLOCK * token_bytes


def _cache(settings: VllmSettings, ground: Ground, memory: int | None) -> tuple[str, ...]:
    """On a processor vLLM else takes nine tenths of the machine's memory, and there is a learner beside it.

    VLLM_CPU_KVCACHE_SPACE in the environment wins over this argument.
    """
    told = any(arg.partition("=")[0] in (CACHE_SIZE, SHARE) for arg in settings.args)
    if ground.device != "cpu" or told:
        return ()
    return CACHE_SIZE, str(cache_bytes(ground.slots, ground.max_length, ground.token_bytes, memory))


def room_for(rank: int) -> int:
    """The smallest rank that vLLM can make room for and that holds `rank`; the largest where none does."""
    return next((size for size in RANKS if size >= max(rank, 16)), RANKS[-1])


def environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """Ours, without proxies and without what is set for strop's own sampler; adapters may be loaded."""
    kept = {k: v for k, v in inherited.items() if k not in OURS and not k.upper().endswith("_PROXY")}
    fixed = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
    return {**kept, **fixed}

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
OURS = ("GOMP_SPINCOUNT", "ONEDNN_PRIMITIVE_CACHE_CAPACITY", "TOKENIZERS_PARALLELISM")


def command(settings: VllmSettings, ground: Ground, port: int) -> list[str]:
    """What starts the server: the bare model as "base", with room for adapters."""
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
        *(("--enforce-eager",) if ground.device == "cpu" else ()),
        "--disable-uvicorn-access-log",
        *settings.args,
    ]


def room_for(rank: int) -> int:
    """The smallest rank that vLLM can make room for and that holds `rank`; the largest where none does."""
    return next((size for size in RANKS if size >= max(rank, 16)), RANKS[-1])


def environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """Ours, without proxies and without what is set for strop's own sampler; adapters may be loaded."""
    kept = {k: v for k, v in inherited.items() if k not in OURS and not k.upper().endswith("_PROXY")}
    fixed = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
    return {**kept, **fixed}

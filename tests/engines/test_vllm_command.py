"""How a vLLM server is started."""

from itertools import pairwise
from pathlib import Path

import pytest

from strop.engines.fake_sampler import FakeTokenizer
from strop.engines.serving import Ground
from strop.engines.vllm.command import command, environment, room_for
from strop.engines.vllm.settings import VllmSettings


def ground(device: str = "cpu") -> Ground:
    return Ground(
        source=Path("model"),
        base=None,
        device=device,
        dtype="bfloat16",
        tokenizer=FakeTokenizer(),
        rank=24,
        slots=7,
        max_length=99,
        bound=0.35,
        token_bytes=10,
    )


def test_the_server_is_told_what_the_learner_has() -> None:
    line = command(VllmSettings(python=Path("py")), ground(), 1234, None)
    assert line[:3] == ["py", "-m", "vllm.entrypoints.openai.api_server"]
    given = dict(pairwise(line))
    assert (given["--model"], given["--dtype"], given["--max-model-len"]) == ("model", "bfloat16", "99")
    assert (given["--max-num-seqs"], given["--max-lora-rank"], given["--port"]) == ("7", "32", "1234")
    assert given["--host"] == "127.0.0.1"


def test_log_probs_are_of_what_is_drawn_from() -> None:
    line = command(VllmSettings(), ground(), 1, None)
    given = dict(pairwise(line))
    assert given["--logprobs-mode"] == "processed_logprobs"
    assert given["--generation-config"] == "vllm"


def test_own_arguments_come_last_and_win() -> None:
    assert command(VllmSettings(args=("--max-loras", "1")), ground("cuda"), 1, None)[-2:] == [
        "--max-loras",
        "1",
    ]


@pytest.mark.parametrize(("device", "given"), [("cpu", True), ("cuda", False)])
def test_prompts_are_computed_whole_on_a_processor(device: str, given: bool) -> None:
    """In pieces, one with a seed would end the server."""
    line = command(VllmSettings(), ground(device), 1, None)
    assert ("--no-enable-chunked-prefill" in line) is ("--enforce-eager" in line) is given


@pytest.mark.parametrize(
    ("memory", "blocks"),
    [
        (None, 8),  # 7 conversations of 99 tokens, a block each, and the one that vLLM keeps
        (10**9, 8),
        (4 * 3 * 128 * 10, 4),  # a quarter holds three
        (100, 2),  # one conversation, however little there is
    ],
)
def test_the_cache_on_a_processor_holds_all_slots_or_a_quarter_of_the_memory(
    memory: int | None, blocks: int
) -> None:
    given = dict(pairwise(command(VllmSettings(), ground(), 1, memory)))
    assert given["--kv-cache-memory-bytes"] == str(blocks * 128 * 10)


@pytest.mark.parametrize(
    ("device", "args"),
    [
        ("cuda", ()),
        ("cpu", ("--kv-cache-memory-bytes=2G",)),
        ("cpu", ("--gpu-memory-utilization", "0.3")),
    ],
)
def test_nothing_is_said_of_the_cache_on_a_device_or_where_the_run_file_does(
    device: str, args: tuple[str, ...]
) -> None:
    line = command(VllmSettings(args=args), ground(device), 1, 10**9)
    assert sum("cache-memory" in one for one in line) == sum("cache-memory" in one for one in args)


@pytest.mark.parametrize(("rank", "room"), [(1, 16), (16, 16), (17, 32), (300, 320), (9999, 512)])
def test_room_is_made_in_the_sizes_that_vllm_knows(rank: int, room: int) -> None:
    assert room_for(rank) == room


def test_the_environment_lets_adapters_be_loaded_and_holds_no_proxy() -> None:
    inherited = {"HTTP_PROXY": "x", "https_proxy": "y", "GOMP_SPINCOUNT": "1", "VLLM_X": "z", "HOME": "h"}
    made = environment(inherited)
    assert made["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] == "True"
    assert {key: made[key] for key in ("VLLM_X", "HOME")} == {"VLLM_X": "z", "HOME": "h"}
    assert not {"HTTP_PROXY", "https_proxy", "GOMP_SPINCOUNT"} & set(made)

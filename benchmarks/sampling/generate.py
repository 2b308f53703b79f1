"""transformers' generate in a process of its own, with torch's own settings."""

import asyncio
import multiprocessing
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

Job = tuple[Sequence[Sequence[int]], int, bool]


class Generate:
    """A peer that samples a turn of all conversations in one padded batch, as trainers that call it do.

    The batch waits until every conversation has asked or ended. Within the turn it has generate's cache;
    the next turn reads the whole conversation again.
    """

    def __init__(self, channel: Connection) -> None:
        self._channel = channel
        self._live = 0
        self._waiting: list[tuple[list[int], asyncio.Future[list[int]]]] = []

    def began(self, conversations: int) -> None:
        self._live = conversations

    def ended(self) -> None:
        self._live -= 1
        self._turn_if_all_asked()

    async def sample(self, prompt: list[int], most: int, *, ends: bool) -> list[int]:
        answer: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()
        self._waiting.append((prompt, answer))
        self._most, self._ends = most, ends
        self._turn_if_all_asked()
        return await answer

    def _turn_if_all_asked(self) -> None:
        if not self._waiting or len(self._waiting) < self._live:
            return
        asked, self._waiting = self._waiting, []
        self._channel.send(([prompt for prompt, _ in asked], self._most, self._ends))
        for (_, answer), ids in zip(asked, self._channel.recv(), strict=True):
            answer.set_result(ids)


@contextmanager
def generate_process(model: Path, dtype: str) -> Iterator[Generate]:
    """Generate on the model in this folder until the block ends."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_serve, args=(model, dtype, there), daemon=True)
    process.start()
    try:
        yield Generate(here)
    finally:
        here.send(None)
        process.join(10)


def _serve(folder: Path, dtype: str, channel: Connection) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()
    with torch.inference_mode():
        while (job := channel.recv()) is not None:
            channel.send(_sampled(model, job))


def _sampled(model: Any, job: Job) -> list[list[int]]:
    import torch

    prompts, most, ends = job
    end, longest = model.config.eos_token_id, max(map(len, prompts))
    padded = torch.tensor([[end] * (longest - len(ids)) + list(ids) for ids in prompts])
    mask = torch.tensor([[0] * (longest - len(ids)) + [1] * len(ids) for ids in prompts])
    out = model.generate(
        padded,
        attention_mask=mask,
        do_sample=True,
        top_k=0,
        max_new_tokens=most,
        pad_token_id=end,
        eos_token_id=end if ends else None,
    )
    rows = out[:, longest:].tolist()
    return [row[: row.index(end) + 1] if ends and end in row else row for row in rows]

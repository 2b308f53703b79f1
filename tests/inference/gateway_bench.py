"""A served-in-memory gateway over a scripted sampler, driven by the openai SDK."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx
import openai

from strop.inference.chat import Chat
from strop.inference.gateway import Gateway
from strop.inference.scripted import ByteTokenizer, ScriptedSampler

KEY = "run-key"
LOOKUP = {
    "type": "function",
    "function": {
        "name": "lookup",
        "description": "Find an order.",
        "parameters": {"type": "object", "properties": {"order": {"type": "string"}}},
    },
}


@dataclass
class Bench:
    """A gateway and the sampler behind it."""

    sampler: ScriptedSampler
    gateway: Gateway

    def client(self, base_url: str | None = None, api_key: str = KEY) -> openai.AsyncOpenAI:
        transport = httpx.ASGITransport(app=self.gateway.app)
        return openai.AsyncOpenAI(
            base_url=base_url or self.gateway.base_url,
            api_key=api_key,
            max_retries=0,
            http_client=httpx.AsyncClient(transport=transport),
        )

    def session(self, name: str = "s") -> openai.AsyncOpenAI:
        return self.client(self.gateway.open([name])[name])


def make_bench(*replies: str, answer: Callable[[str], str] | None = None, **options: Any) -> Bench:
    waiting = list(replies)

    def scripted(_prompt: str) -> str:
        return waiting.pop(0) if len(waiting) > 1 else waiting[0]

    max_context = options.pop("max_context", 4000)
    tokenizer = ByteTokenizer()
    sampler = ScriptedSampler(tokenizer, answer or scripted, **options)
    gateway = Gateway(sampler, Chat(tokenizer), api_key=KEY, max_context=max_context)
    gateway.root = "http://gateway"
    return Bench(sampler=sampler, gateway=gateway)

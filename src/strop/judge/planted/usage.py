"""Tokens as a planted server counts them: in and out, and those of a prompt that it has seen before."""

import hashlib
import math
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from strop.judge.planted.reading import plain_text

BYTES_PER_TOKEN = 4
BLOCK_CHARS = 256
_KEPT_BLOCKS = 200_000

CountTokens = Callable[[str], int]


def estimate_tokens(text: str) -> int:
    """UTF-8 bytes over 4, rounded up: an estimate for English and JSON, no tokenizer's count."""
    return math.ceil(len(text.encode("utf-8", "replace")) / BYTES_PER_TOKEN)


def prompt_tokens(messages: Sequence[Any], count: CountTokens = estimate_tokens) -> int:
    """Tokens of the messages' texts; no chat template is counted."""
    return sum(count(text) for text in _texts(messages))


class PromptCache:
    """Which prompts' beginnings were seen before, in whole blocks of 256 characters, as servers keep them."""

    def __init__(self) -> None:
        self._seen: OrderedDict[bytes, None] = OrderedDict()

    def tokens(self, messages: Sequence[Any], count: CountTokens = estimate_tokens) -> int:
        """Tokens of the longest beginning that an earlier call named; this one is remembered."""
        text = "\n".join(_texts(messages))
        chain, known, unbroken = hashlib.sha256(), 0, True
        for end in range(BLOCK_CHARS, len(text) + 1, BLOCK_CHARS):
            chain.update(text[end - BLOCK_CHARS : end].encode("utf-8", "replace"))
            digest = chain.digest()
            unbroken = unbroken and digest in self._seen
            known = end if unbroken else known
            self._seen[digest] = None
            self._seen.move_to_end(digest)
        while len(self._seen) > _KEPT_BLOCKS:
            self._seen.popitem(last=False)
        return count(text[:known]) if known else 0


def cut_to(text: str, most: int | None, count: CountTokens = estimate_tokens) -> tuple[str, bool]:
    """The beginning of `text` that has at most `most` tokens, and whether something was cut."""
    if most is None or count(text) <= most:
        return text, False
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if count(text[:middle]) <= most else (low, middle - 1)
    return text[:low], True


def _texts(messages: Any) -> list[str]:
    listed = messages if isinstance(messages, Sequence) else ()
    return [plain_text(message.get("content")) for message in listed if isinstance(message, Mapping)]

"""The `Tokenizer` of strop.inference over a transformers tokenizer."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from strop.errors import ModelError, in_one_line

_MANY_KINDS = 'Ünïcode 12345  {"order_id": "A-7"}\n\tif x:\n        return 漢字 🙂 it\'s O\'Neil <think>'


class HFTokenizer:
    """A fast transformers tokenizer as strop.inference needs it."""

    def __init__(self, backend: Any, eos_ids: frozenset[int]) -> None:
        self._backend = backend
        self.chat_template: str = backend.chat_template or ""
        self.bos_token: str = backend.bos_token or ""
        self.eos_token: str = backend.eos_token or ""
        self.eos_ids = eos_ids
        # A model's own headers (<|start_header_id|>) are control tokens that have no name of their own.
        added = [token.content for token in backend.added_tokens_decoder.values() if token.special]
        self.special_tokens: Sequence[str] = tuple(dict.fromkeys([*backend.all_special_tokens, *added]))

    @property
    def longest(self) -> int:
        """Tokens that its model takes at once, as far as the tokenizer says so."""
        return int(min(self._backend.model_max_length, 1 << 30))

    def has(self, token: str) -> bool:
        """Whether this is one token of the vocabulary."""
        return token in self._backend.get_vocab()

    @classmethod
    def load(cls, model: str | Path, *, chat: bool = True) -> "HFTokenizer":
        """Read a model's tokenizer. Raises ModelError where there is none, or for `chat` no chat template."""
        from transformers import AutoTokenizer, GenerationConfig

        try:
            backend = AutoTokenizer.from_pretrained(model)
        except (OSError, ValueError, TypeError) as error:
            raise ModelError(f"{model}: cannot load its tokenizer: {in_one_line(error)}") from error
        if chat and not backend.chat_template:
            raise ModelError(f"{model}: the tokenizer has no chat template; use an instruct model")
        try:
            declared = GenerationConfig.from_pretrained(model).eos_token_id
        except OSError:
            declared = None
        listed = declared if isinstance(declared, list) else [declared]
        ids = {backend.eos_token_id, *listed} - {None}
        return cls(backend, frozenset(ids))

    def encode(self, text: str, *, special: bool) -> list[int]:
        """Token ids of `text`; with `special=False` no part of it becomes a control token."""
        return list(self._backend.encode(text, add_special_tokens=False, split_special_tokens=not special))

    def decode(self, ids: Sequence[int]) -> str:
        """Text of the ids, control tokens left out."""
        return str(self._backend.decode(list(ids), skip_special_tokens=True))

    def agrees(self, other: "HFTokenizer") -> bool:
        """Whether both give the same ids to the same tokens, and cut a text of many kinds alike."""
        ours, theirs = self._backend, other._backend
        return bool(
            ours.get_vocab() == theirs.get_vocab()
            and self.encode(_MANY_KINDS, special=False) == other.encode(_MANY_KINDS, special=False)
        )

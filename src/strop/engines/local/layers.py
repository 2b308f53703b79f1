"""What a model's text config says of its layers: which kinds there are, and how far back each sees."""

from collections.abc import Mapping
from typing import Any

SEEING = frozenset({"full_attention", "sliding_attention"})
"""Kinds of layers that know no more of a token's place than its position and which tokens it sees."""


def foreign_layers(config: Any) -> str | None:
    """The kinds of layers that carry a state of their own or see in another way, in words; None: none."""
    others = sorted(_kinds(config) - SEEING)
    return f"it has {' and '.join(others)} layers" if others else None


def windows(config: Any) -> Mapping[str, int | None]:
    """By kind of layer, how many tokens it sees, itself included; None: all before."""
    window = getattr(config, "sliding_window", None)
    kinds = _kinds(config) or {"full_attention" if window is None else "sliding_attention"}
    return {kind: window if kind == "sliding_attention" else None for kind in sorted(kinds)}


def _kinds(config: Any) -> set[str]:
    return set(getattr(config, "layer_types", None) or getattr(config, "layers_block_type", None) or ())

"""Which kind of reward model a checkpoint is, as far as it says so, and which output is the good one."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from strop.engines.local.tokenizer import HFTokenizer
from strop.engines.local.weights import DType
from strop.errors import ConfigError, ModelError

Kind = Literal["sequence", "steps", "words"]
Asked = Literal["auto", "sequence", "steps", "words"]
Pick = Callable[[Tensor], Tensor]
"""[n, labels] logits to the float32 [n] that count."""

KINDS = {
    "ForSequenceClassification": "sequence",
    "ForRewardModel": "sequence",
    "ForTokenClassification": "steps",
    "ForProcessRewardModel": "steps",
    "ForCausalLM": "words",
    "LMHeadModel": "words",
}
"""By the end of a class's name."""
TWO_LAYERS = {"ForRewardModel": 1, "ForProcessRewardModel": 2}
"""Outputs of the heads of Qwen2.5-Math's reward models (linear, ReLU, linear), which no config tells."""
MARKER = "<extra_0>"
GOOD_NAMES = {"+", "1", "good", "correct", "right", "positive", "pos", "true", "yes", "chosen", "success"}
UNNAMED = {"LABEL_0", "LABEL_1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardConfig:
    """Which model, and what its files do not say.

    `model` a folder or hub name. `kind`: "sequence" scores a conversation at its end, "steps" each step at a
    marker with a head of its own, "words" each step at a marker by the log-odds of the word `good` over the
    word `bad`. `marker` stands after each step. `good` for a head of several labels: the one that counts.
    `text` is "chat" for the model's template where it has one, else and for "plain" the plain format,
    "plain-all" with every message a step. `max_length` tokens are shown at most, None: its context.
    """

    model: str
    kind: Asked = "auto"
    marker: str | None = None
    good: str | None = None
    bad: str | None = None
    text: Literal["chat", "plain", "plain-all"] = "chat"
    max_length: int | None = None
    dtype: DType = "auto"
    device: str = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What was found: `marker` ids after each step, [] for "sequence"; `words` ids of good and bad;
    `label` of the head that counts, None for a head of one."""

    kind: Kind
    two_layers: bool
    marker: tuple[int, ...] = ()
    words: tuple[int, int] | None = None
    label: int | None = None


def found_out(asked: RewardConfig, config: Any, tokenizer: HFTokenizer) -> Found:
    """From config and tokenizer. Raises ModelError, and ConfigError where they say too little."""
    architecture = named(config)
    told = next((KINDS[end] for end in KINDS if architecture.endswith(end)), None)
    kind = told if asked.kind == "auto" else asked.kind
    if told is None or kind != told:
        what = "no reward model that can be read" if told is None else f"read as {told}, not {kind}"
        raise ModelError(
            f"{asked.model}: {architecture} is {what}; a class for sequence or token classification, a "
            "Qwen2.5-Math reward model or a causal LM is needed"
        )
    two_layers = outputs(config) is not None
    if kind == "sequence":
        return Found(kind="sequence", two_layers=two_layers, label=_label(asked, config))
    marker = _marker(asked, tokenizer)
    if kind == "steps":
        return Found(kind="steps", two_layers=two_layers, marker=marker, label=_label(asked, config))
    return Found(kind="words", two_layers=False, marker=marker, words=_words(asked, tokenizer))


def named(config: Any) -> str:
    """The class that a checkpoint was saved from."""
    return str((config.architectures or ["a class that its config does not name"])[0])


def outputs(config: Any) -> int | None:
    """How many a head of two layers has; None for any other head."""
    return next((count for end, count in TWO_LAYERS.items() if named(config).endswith(end)), None)


def writes_chat(asked: RewardConfig, tokenizer: HFTokenizer) -> bool:
    """Whether conversations are written with the model's template; else in the plain format."""
    return asked.text == "chat" and bool(tokenizer.chat_template)


def picking(config: Any, label: int | None) -> Pick:
    """The logit of a head of one label; the probability of `label` among others; its own logit where the
    labels do not exclude each other (`problem_type`)."""
    if label is None:
        return lambda logits: logits.float()[..., 0]
    if config.problem_type in ("regression", "multi_label_classification"):
        return lambda logits: logits.float()[..., label]
    return lambda logits: torch.softmax(logits.float(), dim=-1)[..., label]


def _label(asked: RewardConfig, config: Any) -> int | None:
    names = {int(index): str(name) for index, name in config.id2label.items()}
    if len(names) == 1:
        return None
    if asked.good is not None:
        given = [i for i, name in names.items() if asked.good in (name, str(i))]
    elif set(names.values()) == UNNAMED:
        given = [1]
    else:
        given = [i for i, name in names.items() if name.strip().lower() in GOOD_NAMES]
    if len(given) != 1:
        raise ConfigError(
            f"{asked.model}: {len(names)} labels ({', '.join(list(names.values())[:6])}); say which is the "
            "good one with --reward-good"
        )
    return given[0]


def _marker(asked: RewardConfig, tokenizer: HFTokenizer) -> tuple[int, ...]:
    text = asked.marker
    if text is None and tokenizer.has(MARKER):
        text = MARKER
    if not text:
        raise ConfigError(
            f"{asked.model}: read after each step, but at which token? Say it with --reward-marker: "
            "'ки' for Math-Shepherd, '\\n' for TRL's PRM trainer"
        )
    return tuple(tokenizer.encode(text.replace("\\n", "\n"), special=True))


def _words(asked: RewardConfig, tokenizer: HFTokenizer) -> tuple[int, int]:
    if asked.good is None or asked.bad is None:
        raise ConfigError(
            f"{asked.model}: a causal LM; say which two words are its verdicts with --reward-good and "
            "--reward-bad ('+' and '-' for Math-Shepherd)"
        )
    good, bad = _word(asked.good, tokenizer), _word(asked.bad, tokenizer)
    if good == bad:
        raise ConfigError(f"--reward-good {asked.good}, --reward-bad {asked.bad}: the same token")
    return good, bad


def _word(text: str, tokenizer: HFTokenizer) -> int:
    ids = tokenizer.encode(text, special=True)
    if len(ids) != 1:
        raise ConfigError(f"--reward-good, --reward-bad {text!r}: {len(ids)} tokens; one is needed")
    return ids[0]

"""Is this a server that can be trusted with a run? Asked once each time it comes up."""

import math
from collections.abc import Callable, Mapping, Sequence

from strop.engines.local.probe import gap, likely
from strop.engines.vllm.control import Control
from strop.errors import InputError

TEMPERATURE = 0.5
NEAR = 0.1
"""How far apart two readings of one difference may be, as a share of it."""
OVER_ONE = 1e-3
"""How far above 1 rounding may take a sum of probabilities."""
REPEATED = 8

Fit = Callable[[Control, str, str, Sequence[int]], None]
"""Looks a server over: control, url, the base's name, a short prompt. Raises InputError where it is unfit."""


def base_of(control: Control, url: str, max_length: int) -> str:
    """The name of the bare base at the server. Raises InputError where its context is too short."""
    bases = [model for model in control.models(url) if not model.get("parent")]
    if not bases:
        raise InputError(f"[engine] {url} serves no base model")
    length = bases[0].get("max_model_len")
    if isinstance(length, int) and length < max_length:
        raise InputError(
            f"[engine] {url} takes {length} tokens, [model] max_length is {max_length}; lower it, or start "
            f"the server with --max-model-len {max_length}"
        )
    return str(bases[0]["id"])


def refuse_unfit(control: Control, url: str, base: str, prompt: Sequence[int]) -> None:
    """Raise InputError where adapters cannot be loaded, or log-probs are not of what is drawn from."""
    _refuse_closed(control, url)
    plain = control.top(url, base, prompt, 1.0)
    sharp = control.top(url, base, prompt, TEMPERATURE)
    if not tempered(plain, sharp, TEMPERATURE):
        raise InputError(
            f"[engine] {url} gives log-probs before temperature; start it with "
            "--logprobs-mode processed_logprobs"
        )


def refuse_unscoring(control: Control, url: str, base: str, prompt: Sequence[int]) -> None:
    """Raise InputError where adapters cannot be loaded, or what is said of prompts are no log-probs.

    vLLM's log-probs of prompts are of the plain softmax whatever --logprobs-mode, but for the two modes that
    give logits.
    """
    _refuse_closed(control, url)
    tops = control.prompt_tops(url, base, list(prompt) * REPEATED)
    if not all(math.fsum(map(math.exp, top.values())) <= 1 + OVER_ONE for top in tops):
        raise InputError(
            f"[engine] {url} says logits of prompts, not log-probs; start it without --logprobs-mode, or "
            "with one that ends in _logprobs"
        )


def _refuse_closed(control: Control, url: str) -> None:
    if not control.takes_adapters(url):
        raise InputError(
            f"[engine] {url} takes no adapters; start it with --enable-lora and "
            "VLLM_ALLOW_RUNTIME_LORA_UPDATING=True in its environment"
        )


def tempered(plain: Mapping[int, float], sharp: Mapping[int, float], temperature: float) -> bool:
    """Whether log-probs at a temperature are of the tempered distribution, by those at temperature 1.

    Between two tokens the difference of log-probs is then 1 / temperature times as large: the log-prob of a
    tempered softmax is logit / temperature less a constant. Needs two tokens that both lists have.
    """
    both = [token for token in plain if token in sharp]
    if len(both) < 2:
        return False
    high, low = max(both, key=plain.__getitem__), min(both, key=plain.__getitem__)
    expected = (plain[high] - plain[low]) / temperature
    return abs(sharp[high] - sharp[low] - expected) <= NEAR * abs(expected)


def same(before: Mapping[int, float], now: Mapping[int, float], bound: float) -> bool:
    """Whether two answers to one prompt are one model's: log-probs within `bound`, weighted as a probe's."""
    known = likely(sorted(before.items(), key=lambda pair: -pair[1]))
    return all(token in now for token in known) and gap(known, now) <= bound

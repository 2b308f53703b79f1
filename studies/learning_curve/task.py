"""What both trainers are given: a tiny model, its adapter, prompts in order, a reward. Needs no strop."""

from dataclasses import dataclass

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ .,:\n"
SPECIAL = ("<unk>", "<s>", "</s>")
EOS = 2
WORDS = ("cat", "dog", "sea", "sun", "hat", "map", "ink", "oak", "ice", "elm", "fig", "jam", "kit", "log")
ATTEMPTS, GROUPS, LENGTH = 8, 2, 8


@dataclass(frozen=True)
class Setting:
    """How both learn: GRPO on standardised scores, token mean, no KL, AdamW, every batch used once."""

    steps: int = 50
    learning_rate: float = 4e-3
    betas: tuple[float, float] = (0.9, 0.99)
    max_grad_norm: float = 1.0
    clip_low: float = 0.2
    clip_high: float = 0.28
    dual_clip: float = 3.0
    rank: int = 8


def prompts(step: int) -> list[str]:
    """The prompts of a step, the same for every seed and trainer."""
    return [WORDS[(step * GROUPS + place) % len(WORDS)] for place in range(GROUPS)]


def reward(text: str) -> float:
    """The share of letters that are an a, of the LENGTH that there might be."""
    return text.count("a") / LENGTH

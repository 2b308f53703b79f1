"""The judge: a language model that compares the attempts of a group. A library of its own, no torch."""

from strop.judge.prompt import Prompt, render_prompt

__all__ = ["Prompt", "render_prompt"]

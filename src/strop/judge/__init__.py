"""The judge: a language model that compares the attempts of a group. A library of its own, no torch."""

from strop.judge.judge import Judge
from strop.judge.prompt import Prompt, render_prompt
from strop.judge.reply import parse_reply
from strop.judge.settings import JudgeSettings
from strop.judge.verdict import Cost, Failure, Verdict, apply

__all__ = [
    "Cost",
    "Failure",
    "Judge",
    "JudgeSettings",
    "Prompt",
    "Verdict",
    "apply",
    "parse_reply",
    "render_prompt",
]

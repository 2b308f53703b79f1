"""The judge: a language model that compares the attempts of a group. A library of its own, no torch."""

from strop.judge.ask import Answer, Ask, Request
from strop.judge.endpoint import Endpoint, EndpointSettings
from strop.judge.judge import Judge
from strop.judge.prices import Price
from strop.judge.prompt import Prompt, render_prompt
from strop.judge.reply import parse_reply
from strop.judge.settings import JudgeSettings
from strop.judge.verdict import Cost, Failure, Verdict, apply
from strop.judge.view import View

__all__ = [
    "Answer",
    "Ask",
    "Cost",
    "Endpoint",
    "EndpointSettings",
    "Failure",
    "Judge",
    "JudgeSettings",
    "Price",
    "Prompt",
    "Request",
    "Verdict",
    "View",
    "apply",
    "parse_reply",
    "render_prompt",
]

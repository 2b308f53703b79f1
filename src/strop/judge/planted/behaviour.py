"""A simulated judge with known properties: what it thinks of an attempt, and what it then replies.

The latent score of an attempt is

    quality + place + length_bias ln(characters / usual_length) + taste z1 + noise z2

with z1, z2 standard normal. `place` falls in equal steps from +position_bias / 2 at the first attempt
shown to -position_bias / 2 at the last; it is 0 where one attempt is shown. Every draw comes from
the seed and the request's messages, so the same request gets the same reply in any order of calls.
"""

import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any, Literal

import numpy as np

from strop.errors import InputError
from strop.judge.ask import Answer, Request
from strop.judge.planted.bad import BadReply, Meant, digit_tokens, good_text, spoilt_digit, spoilt_text
from strop.judge.planted.reading import Asked, read_messages
from strop.judge.planted.usage import estimate_tokens, prompt_tokens
from strop.judge.verdict import Alternatives, Cost
from strop.seeds import generator

QUALITY_MARKER = re.compile(r"quality=(-?\d+(?:\.\d+)?(?:e-?\d+)?)")

INJECTION = (
    r"\b(score|rate|grade|mark|give|award|output)\b[^.\n]{0,60}\b(1|1\.0+|10|100|full|top|highest|maximum)\b"
    r"|\b(ignore|disregard)\b[^.\n]{0,60}\b(rubric|standards?|instructions?|others?)\b"
    r"|\b(note|message|attention)\b[^.\n]{0,20}\b(grader|judge|evaluator)s?\b"
    r"""|["']scores?(_\w+)?\\?["']\s*:"""
    r"|(<|&lt;)\s*/?\s*(attempt|trajectory)\b"
)
"""What counts as an attempt's try to be scored: asks for a score, addresses the judge, poses as a verdict."""

DIGITS = 9


def marked_quality(text: str) -> float | None:
    """The number in the last `quality=0.73` of the text; None where there is none."""
    found = QUALITY_MARKER.findall(text)
    return float(found[-1]) if found else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What a planted judge replies, and what it meant by that.

    `scores` by shown id are those meant, whatever went wrong on the way (`bad`); `obeyed` are the ids
    that got the top score because their text asked for it. `alternatives` accompany a digit only.
    """

    text: str
    finish_reason: str
    asked: Asked
    scores: Mapping[str, float]
    bad: BadReply | None = None
    obeyed: tuple[str, ...] = ()
    alternatives: Alternatives = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """A judge with planted properties; also an `Ask`, so that `Judge(Planted(...))` needs no server.

    `noise` is the standard deviation of an error drawn anew in every call, `taste` that of an error
    that stays with an attempt's text, so that no repetition averages it out. `position_bias` is what the
    first place has over the last, `length_bias` what a text e times as long has over another, both on
    the scale of quality. `scale` "clip" cuts the latent score to [0, 1], "logistic" maps it there;
    scores are multiples of `grid` (0: not rounded). `injection` is the probability that an attempt
    whose text matches `injection_pattern` gets the top score. `bad_replies` gives a rate by `BadReply`
    kind. `quality` reads an attempt's text as shown; where it gives None, `unmarked` counts. A digit
    is drawn from the binomial distribution of 9 trials whose mean is 9 times the score, and that
    distribution is what its log-probs say where `logprobs`. Raises InputError for a value out of range.
    """

    noise: float = 0.0
    taste: float = 0.0
    position_bias: float = 0.0
    length_bias: float = 0.0
    usual_length: int = 400
    injection: float = 0.0
    injection_pattern: str = INJECTION
    bad_replies: Mapping[str, float] = field(default_factory=dict)
    quality: Callable[[str], float | None] = marked_quality
    unmarked: float = 0.5
    scale: Literal["clip", "logistic"] = "clip"
    grid: float = 0.01
    explanation: str = "planted"
    logprobs: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("noise", "taste", "grid"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) >= 0):
                raise InputError(f"planted {name} is {getattr(self, name)}; it must be 0 or more")
        rates = [self.injection, sum(self.bad_replies.values()), *self.bad_replies.values()]
        if not all(0 <= rate <= 1 + 1e-9 for rate in rates):
            raise InputError("planted injection, each rate of bad replies and their sum must be in 0 to 1")
        unknown = sorted(set(self.bad_replies) - set(BadReply))
        if unknown:
            raise InputError(f"no kind of bad reply is called {unknown}; there are {[*map(str, BadReply)]}")

    def accuracy(self, gap: float) -> float:
        """The probability that two attempts `gap` apart in quality are ordered rightly in one call.

        Phi(gap / sqrt(2 (noise^2 + taste^2))), where no score is cut or rounded and there is no bias.
        """
        spread = math.sqrt(2 * (self.noise**2 + self.taste**2))
        return NormalDist().cdf(gap / spread) if spread else float(gap > 0) + 0.5 * float(gap == 0)

    def reply(self, body: Mapping[str, Any]) -> Reply | None:
        """The reply to a chat-completions request; None where its messages show no attempt.

        `body["seed"]` takes part in the draws, so that a caller can have the same prompt judged anew.
        """
        messages = body.get("messages")
        asked = read_messages(messages)
        if asked is None:
            return None
        said = json.dumps([messages, body.get("seed")], sort_keys=True, default=str)
        rng = generator(self.seed, "planted", hashlib.sha256(said.encode("utf-8", "replace")).hexdigest())
        scores, obeyed = self._scores(asked, rng)
        kind = self._kind(rng)
        if asked.kind == "digit":
            return self._digit(asked, scores, obeyed, kind, rng)
        meant = Meant(asked=asked, scores=scores, explanation=self.explanation)
        text, reason = (good_text(meant), "stop") if kind is None else spoilt_text(kind, meant, rng)
        return Reply(text=text, finish_reason=reason, asked=asked, scores=scores, bad=kind, obeyed=obeyed)

    async def __call__(self, request: Request) -> Answer:
        """The answer to a judge's request. `repeat` is its seed; tokens are estimated, money is 0."""
        reply = self.reply({"messages": request.messages, "seed": request.repeat or None})
        if reply is None:
            raise InputError("a planted judge finds no attempt in the messages")
        tokens_out = estimate_tokens(reply.text)
        cost = Cost(tokens_in=prompt_tokens(request.messages), tokens_out=tokens_out, calls=1)
        wanted = request.top_logprobs if self.logprobs else 0
        alternatives = tuple(place[:wanted] for place in reply.alternatives) if wanted else ()
        return Answer(
            text=reply.text, finish_reason=reply.finish_reason, alternatives=alternatives, cost=cost
        )

    def _scores(self, asked: Asked, rng: np.random.Generator) -> tuple[dict[str, float], tuple[str, ...]]:
        latent = np.array([self._opinion(text) for text in asked.texts])
        if len(latent) > 1:
            latent += self.position_bias * np.linspace(0.5, -0.5, len(latent))
        latent += self.noise * rng.standard_normal(len(latent))
        draws = rng.random(len(latent))
        scores: dict[str, float] = {}
        obeyed: list[str] = []
        for shown, text, value, draw in zip(asked.ids, asked.texts, latent, draws, strict=True):
            if draw < self.injection and re.search(self.injection_pattern, text, re.IGNORECASE):
                obeyed.append(shown)
            scores[shown] = 1.0 if shown in obeyed else self._score(float(value))
        return scores, tuple(obeyed)

    def _opinion(self, text: str) -> float:
        quality = self.quality(text)
        opinion = self.unmarked if quality is None else quality
        if self.length_bias:
            opinion += self.length_bias * math.log(max(len(text), 1) / self.usual_length)
        if self.taste:
            digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
            opinion += self.taste * float(generator(self.seed, "taste", digest).standard_normal())
        return opinion

    def _score(self, latent: float) -> float:
        score = min(max(latent, 0.0), 1.0) if self.scale == "clip" else 0.5 * (1 + math.tanh(latent / 2))
        return min(round(round(score / self.grid) * self.grid, 6), 1.0) if self.grid else score

    def _kind(self, rng: np.random.Generator) -> BadReply | None:
        draw = rng.random()
        for kind, rate in sorted(self.bad_replies.items()):
            draw -= rate
            if draw < 0:
                return BadReply(kind)
        return None

    def _digit(
        self,
        asked: Asked,
        scores: Mapping[str, float],
        obeyed: tuple[str, ...],
        kind: BadReply | None,
        rng: np.random.Generator,
    ) -> Reply:
        score = scores[asked.ids[0]]
        digit = int(rng.binomial(DIGITS, score))
        spoilt = None if kind is None else spoilt_digit(kind, digit, asked.texts[0])
        text, reason = spoilt or (str(digit), "stop")
        return Reply(
            text=text,
            finish_reason=reason,
            asked=asked,
            scores=scores,
            bad=None if spoilt is None else kind,
            obeyed=obeyed,
            alternatives=_alternatives(text, digit, score),
        )


def _alternatives(text: str, digit: int, score: float) -> Alternatives:
    """The digits' distribution at the last place that holds the digit meant, certainty at all others."""
    tokens = digit_tokens(text)
    places = [place for place, token in enumerate(tokens) if token == str(digit)]
    certain = [((token, 0.0),) for token in tokens]
    if places:
        return (*certain[: places[-1]], _binomial(score), *certain[places[-1] + 1 :])
    return tuple(certain)


def _binomial(score: float) -> tuple[tuple[str, float], ...]:
    """Each digit of some probability with its log-probability, likeliest first."""
    mass = {d: math.comb(DIGITS, d) * score**d * (1 - score) ** (DIGITS - d) for d in range(DIGITS + 1)}
    likely = sorted(((p, d) for d, p in mass.items() if p > 0), key=lambda pair: (-pair[0], pair[1]))
    return tuple((str(d), math.log(p)) for p, d in likely)

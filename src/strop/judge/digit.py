"""Mode "logprob": the judge answers with one digit, and the score is the mean of the digit's distribution.

score = (sum of p(d) d / sum of p(d)) / 9 over the digits d among the alternatives of the reply token
that is the digit: the weighting of G-Eval (Liu et al. 2023, arXiv:2303.16634), normalised over what is
a score at all.
"""

import math
import re

from strop.judge import refusal
from strop.judge.reasoning import after_reasoning
from strop.judge.verdict import Alternatives, Failure, Verdict

TOP = 9
LEAST_MASS = 0.5
SHOWN = "1"

_ROUNDING = 1e-6
_RUN = re.compile(r"[\w.,/%+\-]+")
_DIGIT = re.compile(r"[0-9]")
_AROUND = r"""[\s*_`"'(){}\[\]|]*"""
_ALONE = re.compile(rf"^{_AROUND}([0-9])[.,]?{_AROUND}$", re.MULTILINE)
_LABELLED = re.compile(
    rf"\b(?:score|rating|rate|grade|digit|answer|verdict|result){_AROUND}(?:is|[:=])?{_AROUND}([0-9])(?![0-9])",
    re.IGNORECASE,
)
_SPACES = str.maketrans({"\u2581": " ", "\u0120": " ", "\u010a": "\n"})
_SPECIAL = re.compile(r"(?:<[^<>\s]*>|\[/?[A-Z_]+\])?")
_UNLIKELY = -1e9


def parse_digit(text: str | None, alternatives: Alternatives, finish_reason: str | None = None) -> Verdict:
    """The verdict on the one shown id "1" in a reply that is a digit from 0 to 9.

    The digit must be alone on its line (markup, quotes and a full stop aside) or follow a label, as in
    "Score: 7" or `{"score": 7}`, and no other number may occur, leading reasoning aside. Failures:
    `empty`; `refusal`; `truncated` where the limit came before any digit; `ambiguous` where two
    different digits occur; `wrong_schema` for any other text ("7/10", "10", "7.5", "3 errors", none);
    `bad_score` where digits have less than half of the probability, or log-probabilities are missing,
    not finite or over 0. `detail` of a good verdict says the digits' probability; the flag "tolerant"
    says that the reply was more than the digit.
    """
    said = text or ""
    stated = _stated(said, finish_reason)
    if isinstance(stated, tuple):
        return Verdict(failure=stated[0], detail=stated[1])
    options = _options(alternatives, said, stated)
    if not options:
        return Verdict(failure=Failure.BAD_SCORE, detail="the digit's token has no log-probabilities")
    if any(not math.isfinite(value) or value > _ROUNDING for _, value in options):
        return Verdict(failure=Failure.BAD_SCORE, detail="a log-probability is not finite or over 0")
    score, mass = _expected(options)
    share = f"digits have {mass:.3f} of the probability"
    if not LEAST_MASS <= mass <= 1 + len(options) * _ROUNDING:
        return Verdict(failure=Failure.BAD_SCORE, detail=share)
    return Verdict(scores={SHOWN: score}, detail=share, flags=("tolerant",) if len(said.strip()) > 1 else ())


def expected_digit(alternatives: Alternatives, text: str) -> tuple[float, float] | None:
    """Expected score in [0, 1] and the probability that digits have, at the token that is the reply's digit.

    Alternatives that are no lone digit, white space aside, are left out and the rest normalised. None
    where the reply states no digit (as for `parse_digit`), or its token's alternatives are unknown, not
    finite, over 0 or hold no digit.
    """
    stated = _stated(text, None)
    options = [] if isinstance(stated, tuple) else _options(alternatives, text, stated)
    if not options or any(not math.isfinite(value) or value > _ROUNDING for _, value in options):
        return None
    score, mass = _expected(options)
    return (score, mass) if mass > 0 else None


def _stated(text: str, finish_reason: str | None) -> int | tuple[Failure, str]:
    """Where the one digit of the reply stands, or what is wrong."""
    if refusal.is_filtered(finish_reason):
        return refusal.FILTERED
    start, endless = after_reasoning(text)
    said = text[start:]
    runs = [run.strip(".,") for run in _RUN.findall(said)]
    numbers = [run for run in runs if any(char.isnumeric() for char in run)]
    if endless or (not numbers and refusal.is_cut(finish_reason)):
        return refusal.CUT
    if not said.strip():
        return refusal.EMPTY
    if any(len(run) > 1 or not _DIGIT.match(run) for run in numbers):
        return Failure.WRONG_SCHEMA, "the reply holds a number that is no digit from 0 to 9"
    if len(set(numbers)) > 1:
        return Failure.AMBIGUOUS, "the reply holds digits that differ"
    found = _ALONE.search(said) or _LABELLED.search(said)
    if found is not None:
        return start + found.start(1)
    if refusal.declines(said):
        return refusal.DECLINED
    return Failure.WRONG_SCHEMA, "the reply is not one digit"


def _expected(options: list[tuple[str, float]]) -> tuple[float, float]:
    weights = [(int(digit), math.exp(value)) for token, value in options if (digit := _digit(token))]
    mass = math.fsum(weight for _, weight in weights)
    total = math.fsum(digit * weight for digit, weight in weights)
    return (min(max(total / mass / TOP, 0.0), 1.0) if mass > 0 else 0.0), mass


def _digit(token: str) -> str | None:
    lone = token.translate(_SPACES).strip()
    return lone if len(lone) == 1 and _DIGIT.match(lone) else None


def _options(alternatives: Alternatives, text: str, digit_at: int) -> list[tuple[str, float]]:
    """The alternatives of the token that holds the character `digit_at`; none where no token can.

    Which token was sampled at each place is not told, only that together they are the text: the
    likeliest such sequence is taken (Viterbi). Special tokens and outer white space may lack in the text.
    """
    best: dict[int, tuple[float, int | None]] = {0: (0.0, None)}
    for place, options in enumerate(alternatives):
        following: dict[int, tuple[float, int | None]] = {}
        for at, (likelihood, holder) in best.items():
            for token, value in options:
                total = likelihood + (value if math.isfinite(value) else _UNLIKELY)
                for end in _ends(token, text, at):
                    holds = place if at <= digit_at < end else holder
                    if end not in following or following[end][0] < total:
                        following[end] = (total, holds)
        best = following
    found = [(total, holder) for total, holder in best.values() if holder is not None]
    return list(alternatives[max(found)[1]]) if found else []


def _ends(token: str, text: str, at: int) -> set[int]:
    """Where the text may go on after `token` at `at`; nowhere if the token does not continue it."""
    plain = token.translate(_SPACES)
    ends = {at + len(form) for form in (token, plain) if form and text.startswith(form, at)}
    if at == 0 and plain.strip() and text.startswith(plain.lstrip()):
        ends.add(len(plain.lstrip()))
    if at == len(text.rstrip()) or at == 0:
        ends |= {at} if not plain.strip() else set()
    elif plain.strip() and text.rstrip()[at:] == plain.rstrip():
        ends.add(len(text.rstrip()))
    return ends | ({at} if _SPECIAL.fullmatch(token) else set())

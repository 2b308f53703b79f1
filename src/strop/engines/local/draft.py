"""Drafts: guesses at what a conversation says next, read by the model many at a time.

Tool-using agents repeat themselves: the frame of a call, an order's number, a verdict's fields. A guess
costs one more row in a pass that is bound by reading weights; a wrong one costs nothing but that row, as
every token is drawn as if there had been no guess. Speculation by lookup in the conversation's own text
and in what its cohort has said before, each trusted as far as it has been right.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

MATCHES = (8, 4, 2)
"""Lengths at which the conversation's own text is searched, the longest match first."""
SPOKEN = 4
"""How many tokens must agree with what the cohort has said."""
LIKELY = 0.5
"""A draft goes on while the chance that all of it is right stays above this."""
LONGEST = 8
FEW = 0.3
"""Cases of something else that each count is weighed against, so that one case is no certainty."""


@dataclass(slots=True)
class _Past:
    """What followed a context in the cohort, and how often the conversation's own text foretold it."""

    followers: dict[int, int] = field(default_factory=dict)
    cases: int = 0
    foretold: int = 0
    asked: int = 0


class Echo:
    """A conversation's tokens, and what followed where its last few occurred before."""

    def __init__(self, ids: Sequence[int]) -> None:
        self.ids: list[int] = []
        self._follower: dict[tuple[int, ...], int] = {}
        self.extend(ids)

    def extend(self, ids: Sequence[int]) -> None:
        """The conversation went on."""
        for token in ids:
            for length in MATCHES:
                if len(self.ids) >= length:
                    self._follower[tuple(self.ids[-length:])] = token
            self.ids.append(token)

    def follower(self, tail: Sequence[int]) -> tuple[int, int] | None:
        """(length of the match, what followed it last), for the longest match with the end of `tail`."""
        for length in MATCHES:
            token = self._follower.get(tuple(tail[-length:]))
            if token is not None:
                return length, token
        return None


class Habit:
    """What the conversations of one cohort tend to say: a function of what they have said, nothing else."""

    def __init__(self) -> None:
        self._past: dict[tuple[int, ...], _Past] = {}
        # By length of match: (right, asked) for the conversations' own text, sceptical to begin with.
        self._own = dict.fromkeys(MATCHES, (FEW, 1.0))

    def learn(self, echo: Echo, token: int) -> None:
        """`token` was said next in the conversation of `echo`, which does not hold it yet."""
        tail = echo.ids[-MATCHES[0] :]
        past = self._past.setdefault(tuple(tail[-SPOKEN:]), _Past())
        past.followers[token] = past.followers.get(token, 0) + 1
        past.cases += 1
        own = echo.follower(tail)
        if own is not None:
            length, guess = own
            right, asked = self._own[length]
            self._own[length] = (right + (guess == token), asked + 1)
            past.foretold += guess == token
            past.asked += 1

    def draft(self, echo: Echo, longest: int) -> list[int]:
        """The most likely continuation, as long as it is LIKELY as a whole and at most `longest`."""
        tail, guesses, chance = echo.ids[-MATCHES[0] :], list[int](), 1.0
        while len(guesses) < min(longest, LONGEST):
            token, probability = self._guess(echo, tail)
            chance *= probability
            if token is None or chance < LIKELY:
                break
            guesses.append(token)
            tail = [*tail[-MATCHES[0] + 1 :], token]
        return guesses

    def _guess(self, echo: Echo, tail: Sequence[int]) -> tuple[int | None, float]:
        past = self._past.get(tuple(tail[-SPOKEN:]), _Past())
        token, count = max(past.followers.items(), key=lambda pair: pair[1], default=(None, 0))
        probability = count / (past.cases + FEW)
        own = echo.follower(tail)
        if own is None:
            return token, probability
        length, echoed = own
        right, asked = self._own[length]
        # The context's own record, weighed with two cases of what such matches are worth anywhere.
        trust = (past.foretold + 2 * right / asked) / (past.asked + 2)
        return (echoed, trust) if trust > probability else (token, probability)

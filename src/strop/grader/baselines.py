"""What any score of runs or steps must beat: one number a run or a step, each with its definition's sign."""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeVar

import numpy as np

from strop.errors import InputError
from strop.grader.grade import Graded, StepGrade
from strop.grader.ratio import Floats

RunScore = Callable[[Graded], float]
"""Higher: more likely right. The run has at least one graded step."""
StepScore = Callable[[Graded], Floats]
"""One number a step, [K]; lower: more suspect."""
Certain = Literal["entropy", "self_certainty", "deepconf"]
"""What only somebody who sees the whole distribution can say of a step."""
Score = TypeVar("Score", RunScore, StepScore)


def certainty(name: Certain) -> Callable[[StepGrade], float]:
    """That number of a step. Raises InputError where its grade was made without it; never a 0."""

    def read(step: StepGrade) -> float:
        value: float | None = getattr(step, name)
        if value is None:
            raise InputError(f"step {step.index}: {name} is {UNKNOWN}")
        return value

    return read


def total(read: Callable[[StepGrade], float]) -> RunScore:
    """Sum of a number over the steps."""
    return lambda g: float(sum(map(read, g.steps)))


def token_mean(read: Callable[[StepGrade], float]) -> RunScore:
    """Mean over the tokens of the run, from means over those of each step."""
    return lambda g: float(sum(s.n_tokens * read(s) for s in g.steps) / sum(s.n_tokens for s in g.steps))


def negated(score: RunScore) -> RunScore:
    """The same score with the other sign."""
    return lambda g: -score(g)


def each(read: Callable[[StepGrade], float]) -> StepScore:
    """A number of each step."""
    return lambda g: np.array([float(read(s)) for s in g.steps])


def places(graded: Graded) -> Floats:
    """0, 1, 2, … for the steps."""
    return np.arange(len(graded.steps), dtype=np.float64)


def perplexity(read: Callable[[StepGrade], float]) -> RunScore:
    """exp(−mean log-prob of a token), at least 1; `read` gives a step's summed log-prob."""
    tokens = total(lambda s: s.n_tokens)
    return lambda g: float(np.exp(np.clip(-total(read)(g) / tokens(g), None, 500.0)))


def lowest_tenth(read: Callable[[StepGrade], float]) -> RunScore:
    """Mean of a number over the lowest ceil(K / 10) steps."""

    def score(graded: Graded) -> float:
        values = np.sort([read(s) for s in graded.steps])
        return float(values[: -(-len(values) // 10)].mean())

    return score


_tokens = total(lambda s: s.n_tokens)
_certainty, _deepconf = token_mean(certainty("self_certainty")), token_mean(certainty("deepconf"))
_entropy = token_mean(certainty("entropy"))

SHORT: Mapping[str, RunScore] = {
    "fewer tokens": negated(_tokens),
    "more tokens": _tokens,
    "fewer steps": lambda g: -float(len(g.steps)),
    "more steps": lambda g: float(len(g.steps)),
    "constant": lambda g: 0.0,  # noqa: ARG005
    "policy log-prob": total(lambda s: s.policy_logprob),
    "reference log-prob": total(lambda s: s.reference_logprob),
    "Self-Certainty": _certainty,
    "DeepConf": _deepconf,
}
"""The nulls of a run's audit. Self-Certainty (arXiv 2502.18581) and DeepConf (arXiv 2508.15260): higher is
more certain, as they are defined."""

RUNS: Mapping[str, RunScore] = {
    **SHORT,
    "low perplexity": negated(perplexity(lambda s: s.policy_logprob)),
    "low perplexity of the reference": negated(perplexity(lambda s: s.reference_logprob)),
    "low entropy": negated(_entropy),
    "high entropy": _entropy,
    "Self-Certainty, sign flipped": negated(_certainty),
    "DeepConf, sign flipped": negated(_deepconf),
    "DeepConf of the last step": lambda g: certainty("deepconf")(g.steps[-1]),
    "DeepConf of the lowest tenth of steps": lowest_tenth(certainty("deepconf")),
}
"""All baselines of runs that grades alone give; both signs where an implementation is known to flip it."""

GUESSES: Mapping[str, StepScore] = {
    "uniform guess": lambda g: np.zeros(len(g.steps)),
    "first step": places,
    "last step": lambda g: -places(g),
    "longest step": each(lambda s: -s.n_tokens),
}
"""Guesses at a step that know nothing but its place and length. The uniform guess is chance by length."""

STEPS: Mapping[str, StepScore] = {
    **GUESSES,
    "shortest step": each(lambda s: s.n_tokens),
    "policy log-prob": each(lambda s: s.policy_logprob),
    "reference log-prob": each(lambda s: s.reference_logprob),
    "highest perplexity": each(lambda s: s.policy_logprob / s.n_tokens),
    "highest entropy": each(lambda s: -certainty("entropy")(s)),
    "lowest entropy": each(certainty("entropy")),
    "Self-Certainty": each(certainty("self_certainty")),
    "Self-Certainty, sign flipped": each(lambda s: -certainty("self_certainty")(s)),
    "DeepConf": each(certainty("deepconf")),
    "DeepConf, sign flipped": each(lambda s: -certainty("deepconf")(s)),
}
"""All baselines of steps that grades alone give."""

UNKNOWN = "not in these grades: whoever scored them gave single log-probs only"
NEEDS: Mapping[Certain, frozenset[str]] = {
    "entropy": frozenset({"low entropy", "high entropy", "highest entropy", "lowest entropy"}),
    "self_certainty": frozenset({"Self-Certainty", "Self-Certainty, sign flipped"}),
    "deepconf": frozenset(
        {
            "DeepConf",
            "DeepConf, sign flipped",
            "DeepConf of the last step",
            "DeepConf of the lowest tenth of steps",
        }
    ),
}
"""The baselines that grades made from single log-probs cannot give."""


def parted(scores: Mapping[str, Score], graded: Sequence[Graded]) -> tuple[dict[str, Score], dict[str, str]]:
    """The scores that all these runs can be given, and why not the others, by name."""
    missing = [what for what in NEEDS if any(getattr(s, what) is None for g in graded for s in g.steps)]
    without = {name for what in missing for name in NEEDS[what]}
    known = {name: score for name, score in scores.items() if name not in without}
    return known, {name: UNKNOWN for name in scores if name in without}


def implicit_rewards(graded: Graded) -> Floats:
    """q[t] = Σ grades up to step t, [K]: the implicit reward of each prefix.

    β · log π/π_ref of a whole reply is its reward where the world is deterministic (Rafailov et al. 2023,
    the DPO trick); Implicit PRM (arXiv 2412.01981) reads a prefix's value off the running sum. Of the whole
    run it is the sum of grades, the same number as the progress advantage by another argument.
    """
    return np.cumsum([s.grade for s in graded.steps])


OWN: Mapping[str, RunScore] = {
    "progress advantage (mean step)": lambda g: float(np.mean([s.grade for s in g.steps])),
    "progress advantage (lowest step)": lambda g: float(min(s.grade for s in g.steps)),
    "implicit reward, whole run (telescoped)": lambda g: float(implicit_rewards(g)[-1]),
    "implicit reward per token": lambda g: float(implicit_rewards(g)[-1]) / _tokens(g),
    "implicit reward, lowest prefix": lambda g: float(implicit_rewards(g).min()),
}
"""Other readings of the same log-ratios, shown beside the default and never claimed."""

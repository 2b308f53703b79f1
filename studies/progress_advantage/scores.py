"""Scores of steps, [W, H, S, A] each: the grade, what it is set against, and the truth."""

import numpy as np

from studies.progress_advantage import words
from studies.progress_advantage.mdp import Floats, Worlds
from studies.progress_advantage.soft import plain_values

# The step value is Q − V of the policy under reward alone: what Monte-Carlo completions estimate.
GRADE, CENTRED = "progress advantage", "centred"
STEP_VALUE = "exact step value"
LOGPROB, REFERENCE = "policy log-prob", "reference log-prob"
BY_STEP = (GRADE, CENTRED, STEP_VALUE, LOGPROB, REFERENCE)
"""Scores that differ between the steps of an attempt."""


def grade(policy: Floats, reference: Floats, beta: float) -> Floats:
    """β · (log π − log π_ref)."""
    result: Floats = beta * (policy - reference)
    return result


def centred(policy: Floats, reference: Floats, beta: float) -> Floats:
    """The grade less β times the KL at each of the action's tokens."""
    result: Floats = beta * (policy - reference - words.drift(policy, reference))
    return result


def scores(worlds: Worlds, policy: Floats, reference: Floats, beta: float) -> dict[str, Floats]:
    """All scores by name; step values are exact here, which in practice cost rollouts of the world."""
    one = np.ones_like(policy)
    return {
        GRADE: grade(policy, reference, beta),
        CENTRED: centred(policy, reference, beta),
        STEP_VALUE: plain_values(worlds, policy).advantage,
        LOGPROB: policy,
        REFERENCE: reference,
        "fewer steps": -one,
        "more steps": one,
        "fewer tokens": -one * words.lengths(policy.shape[-1]),
    }


def blind(tables: dict[str, Floats]) -> dict[str, Floats]:
    """Guesses at a step that know nothing: all steps tie, or the longest word is the culprit."""
    return {"uniform guess": 0 * tables["fewer steps"], "longest step": tables["fewer tokens"]}

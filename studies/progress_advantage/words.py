"""Actions as words of tokens: "0", "10", "110", "111", a code in which no word begins another.

Tokens are appended by the policy alone, so that inside a step nothing is left to chance: the chain rule
gives log π(a|s) = Σ log π(token | s, tokens before), and the same for the reference.
"""

import numpy as np

from strop.grader.ratio import Aggregator, Reading, step_grade
from studies.progress_advantage.mdp import Floats


def lengths(actions: int) -> Floats:
    """Tokens of each action's word, [A]: 1, 2, ..., A - 1, A - 1."""
    counted: Floats = np.minimum(np.arange(1.0, actions + 1), actions - 1.0)
    return counted


def token_logprobs(policy: Floats) -> Floats:
    """log π of "stop here" and "go on" after a ones, [..., A - 1, 2], from log π [..., A]."""
    p = np.exp(policy)
    # log Σ_{b ≥ a} π(b): added from the end, so that it is exact for small probabilities.
    tail = np.log(np.flip(np.cumsum(np.flip(p, axis=-1), axis=-1), axis=-1))
    stop, go = policy[..., :-1] - tail[..., :-1], tail[..., 1:] - tail[..., :-1]
    return np.stack([stop, go], axis=-1)


def word(choices: Floats, action: int) -> Floats:
    """Log-probs of the tokens of one action's word, from `token_logprobs` at one state [A - 1, 2]."""
    n = len(choices)
    ones = choices[: min(action, n), 1]
    return ones if action == n else np.append(ones, choices[action, 0])


def grades(
    policy: Floats, reference: Floats, how: Aggregator = "sum", reading: Reading = "aggregate-of-ratios"
) -> Floats:
    """Step grades of every action, from its tokens and by the grader's own functions, in units of β.

    From log π and log π_ref [..., A]; same shape. With `sum` it is log π − log π_ref of the action.
    """
    actions = policy.shape[-1]
    ours = token_logprobs(policy).reshape(-1, actions - 1, 2)
    theirs = token_logprobs(reference).reshape(-1, actions - 1, 2)
    rows = [
        [step_grade(word(p, a), word(r, a), how, reading) for a in range(actions)]
        for p, r in zip(ours, theirs, strict=True)
    ]
    return np.array(rows).reshape(policy.shape)


def drift(policy: Floats, reference: Floats) -> Floats:
    """Σ over an action's tokens of the KL of the next token, [..., A] in nats: what centring subtracts."""
    ours, theirs = token_logprobs(policy), token_logprobs(reference)
    kl = (np.exp(ours) * (ours - theirs)).sum(axis=-1)
    so_far = np.cumsum(kl, axis=-1)
    return np.concatenate([so_far, so_far[..., -1:]], axis=-1)

"""The study of progress advantage, its maths: against enumeration, hand arithmetic and the grader."""

from itertools import product
from math import exp, log

import numpy as np
import pytest
from studies.progress_advantage import training, words
from studies.progress_advantage.attempts import draw
from studies.progress_advantage.desk import BETA, choices, clerk, desk
from studies.progress_advantage.identities import check, luck
from studies.progress_advantage.mdp import (
    START,
    Family,
    Worlds,
    deterministic_twin,
    normalised,
    occupancy,
    random_policy,
    random_worlds,
    with_rewards,
)
from studies.progress_advantage.moments import (
    Sum,
    correlation,
    covariance,
    mean,
    of_steps,
    returns,
    step_correlation,
)
from studies.progress_advantage.soft import best_values, kl, optimal_policy, plain_values, soft_values

from strop.grader.ratio import aggregate, centred, log_ratio

EXACT = 1e-12


@pytest.fixture(scope="module")
def rng() -> np.random.Generator:
    return np.random.default_rng(5)


@pytest.fixture(scope="module")
def paying(rng: np.random.Generator) -> Worlds:
    return with_rewards(random_worlds(20, rng, Family()), rng)


@pytest.fixture(scope="module")
def reference(paying: Worlds, rng: np.random.Generator) -> np.ndarray:
    return random_policy(paying, rng)


@pytest.mark.parametrize("beta", [0.1, 0.5, 2.0])
@pytest.mark.parametrize("twin", [False, True], ids=["stochastic", "deterministic"])
def test_the_log_ratio_is_the_optimal_advantage(paying, reference, beta, twin):
    worlds = deterministic_twin(paying) if twin else paying
    policy = optimal_policy(worlds, reference, beta)
    values = soft_values(worlds, policy, reference, beta)
    assert np.exp(policy).sum(axis=-1) == pytest.approx(1, abs=EXACT)
    assert np.abs(beta * (policy - reference) - values.advantage).max() < EXACT


def test_only_the_optimum_has_it(paying, reference):
    policy = optimal_policy(paying, reference, 0.5)
    moved = normalised(policy + 0.1 * np.random.default_rng(0).normal(size=policy.shape))
    values = soft_values(paying, moved, reference, 0.5)
    assert np.abs(0.5 * (moved - reference) - values.advantage).max() > 0.01
    assert (values.v[:, 0, START] < soft_values(paying, policy, reference, 0.5).v[:, 0, START]).all()


def test_natural_gradient_gets_to_the_same_policy_by_another_way(paying, reference):
    beta = 0.5
    steps = training.natural_gradient(paying, reference, beta, 1.0)
    *_, reached = (next(steps) for _ in range(80))
    assert reached == pytest.approx(optimal_policy(paying, reference, beta), abs=1e-9)


def test_the_desk_by_hand():
    at_last = BETA * log(0.1 + 0.7 * exp(1 / BETA) + 0.2)
    values = soft_values(desk(), optimal_policy(desk(), clerk(), BETA), clerk(), BETA)
    assert values.v[0, 2, 1] == pytest.approx(at_last, abs=EXACT)
    assert values.q[0, 1, 1, 0] == pytest.approx(at_last, abs=EXACT)
    refund = next(c for c in choices() if (c.state, c.action) == ("new request", "refund"))
    assert refund.q == pytest.approx(0.6)
    assert refund.grade == pytest.approx(0.6 - refund.v)


def test_the_mean_grade_is_beta_kl_and_centred_it_is_nothing(paying, reference):
    for worlds in (paying, deterministic_twin(paying)):
        found = check(worlds, reference)
        assert max(found.drift, found.centred) < EXACT
    policy = optimal_policy(paying, reference, 0.5)
    raw = mean(paying, policy, of_steps(paying, policy - reference))
    assert raw.min() > 0.05  # a longer attempt gets more, whatever it does
    subtracted = of_steps(paying, policy - reference - words.drift(policy, reference))
    assert np.abs(mean(paying, policy, subtracted)).max() < EXACT


def test_telescoping_recovers_rewards_only_without_chance(paying, reference):
    stochastic, twin = check(paying, reference), check(deterministic_twin(paying), reference)
    assert twin.reward == 0
    assert twin.unexplained.estimate < EXACT
    assert stochastic.reward > 1
    assert stochastic.unexplained.low > 0.2


def test_what_the_sum_leaves_out_is_luck_attempt_by_attempt():
    """Σ A = R − V(s0) − Σ [V(s') − E V(s')], read off drawn attempts."""
    rng = np.random.default_rng(1)
    worlds = random_worlds(5, rng, Family())
    reference = random_policy(worlds, rng)
    policy = optimal_policy(worlds, reference, 0.2)
    values = soft_values(worlds, policy, reference, 0.2)
    attempts = draw(worlds, policy, 6, rng)
    for w, n in product(range(5), range(6)):
        states, actions = attempts.states[w, n], attempts.actions[w, n]
        total, surprises = 0.0, 0.0
        for t, (s, a) in enumerate(zip(states, actions, strict=True)):
            total += 0.2 * (policy - reference)[w, t, s, a]
            after = values.v[w, t + 1, states[t + 1]] if t + 1 < worlds.horizon else attempts.success[w, n]
            surprises += after - worlds.transitions[w, s, a] @ values.v[w, t + 1]
        expected = attempts.success[w, n] - values.v[w, 0, START] - surprises
        assert total == pytest.approx(expected, abs=EXACT)


def test_the_variance_left_over_is_that_of_the_luck(paying, reference):
    policy = optimal_policy(paying, reference, 0.5)
    values = soft_values(paying, policy, reference, 0.5)
    grades, paid = of_steps(paying, 0.5 * (policy - reference)), returns(paying)
    error = Sum(steps=grades.steps - paid.steps, end=-paid.end)
    steps = mean(paying, policy, of_steps(paying, np.ones_like(policy)))
    left = covariance(paying, policy, error, error)
    assert left == pytest.approx(steps * luck(paying, policy, values.v), rel=1e-9)


def every_attempt(worlds: Worlds, policy: np.ndarray, x: Sum, y: Sum) -> list[tuple[float, float, float]]:
    """Probability, X and Y of every path of one small world, by walking them all."""
    found = []

    def walk(t: int, s: int, p: float, a: float, b: float) -> None:
        if t == worlds.horizon:
            found.append((p, a + x.end[0, s], b + y.end[0, s]))
            return
        for action, after in product(range(policy.shape[-1]), range(worlds.final.shape[-1])):
            q = p * np.exp(policy[0, t, s, action]) * worlds.transitions[0, s, action, after]
            if q > 0:
                walk(t + 1, after, q, a + x.steps[0, t, s, action], b + y.steps[0, t, s, action])

    walk(0, START, 1.0, 0.0, 0.0)
    return found


def test_moments_and_values_against_every_attempt_of_the_desk():
    worlds, policy = desk(), optimal_policy(desk(), clerk(), BETA)
    x, y = of_steps(worlds, policy - clerk()), returns(worlds)
    p, a, b = np.array(every_attempt(worlds, policy, x, y)).T
    assert p.sum() == pytest.approx(1)
    covered = p @ (a * b) - (p @ a) * (p @ b)
    assert mean(worlds, policy, x)[0] == pytest.approx(p @ a)
    assert covariance(worlds, policy, x, y)[0] == pytest.approx(covered)
    deviations = np.sqrt((p @ a**2 - (p @ a) ** 2) * (p @ b**2 - (p @ b) ** 2))
    assert correlation(worlds, policy, x, y)[0] == pytest.approx(covered / deviations)
    assert plain_values(worlds, policy).v[0, 0, START] == pytest.approx(p @ b)
    assert occupancy(worlds, policy).sum(axis=-1) == pytest.approx(1)


def test_best_play_at_the_desk_is_to_look_up_and_then_do_right():
    """A look-up works in 9 of 10 cases; where two fail the last step is a refund on a guess."""
    assert best_values(desk()).v[0, 0, START] == pytest.approx(0.9 + 0.1 * (0.9 + 0.1 * 0.6))


def test_a_constant_has_no_correlation(paying, reference):
    nothing = of_steps(paying, np.zeros_like(reference))
    assert np.isnan(correlation(paying, reference, nothing, returns(paying))).all()
    one = np.ones_like(reference)
    assert np.isnan(step_correlation(np.exp(reference), 0 * one, reference)).all()
    assert step_correlation(np.exp(reference), reference, -2 * reference) == pytest.approx(-1)


def test_a_policy_gradient_step_follows_the_slope_of_the_objective(paying, reference):
    beta, small = 0.5, 1e-6
    stepped = next(training.policy_gradient(paying, reference, beta, small))
    direction = (stepped - reference) / small
    for t, s, a in ((0, START, 0), (1, 3, 2), (4, 6, 1)):
        nudged = reference.copy()
        nudged[:, t, s, a] += small
        gained = soft_values(paying, normalised(nudged), reference, beta).v[:, 0, START]
        slope = (gained - soft_values(paying, reference, reference, beta).v[:, 0, START]) / small
        # Of the softmax's free constant only differences between actions are known.
        other = reference.copy()
        other[:, t, s, 3] += small
        rival = soft_values(paying, normalised(other), reference, beta).v[:, 0, START]
        rival = (rival - soft_values(paying, reference, reference, beta).v[:, 0, START]) / small
        assert direction[:, t, s, a] - direction[:, t, s, 3] == pytest.approx(slope - rival, abs=1e-4)


def test_clipping_stops_where_the_ratio_leaves_the_clip(paying, reference):
    """Without the clip one update would go on moving; with it most favoured actions stop near 1.2. Some move
    past it as their rivals lose, for probabilities add up to 1."""
    before, after = next(training.clipped(paying, reference, 0.2, 0.05, inner=400))
    advantage = plain_values(paying, before).advantage
    visited = occupancy(paying, before)[..., None] > 0.1
    ratio = np.exp(after - before)
    favoured = ratio[(advantage > 0) & visited]
    assert np.quantile(favoured, 0.8) < 1.25
    assert favoured.max() < 1.6
    _, free = next(training.clipped(paying, reference, 100.0, 0.05, inner=400))
    assert np.exp(free - before)[(advantage > 0) & visited].max() > 2
    assert (kl(after, before) < kl(free, before) + EXACT)[visited[..., 0]].mean() > 0.95


def test_words_hold_the_chain_rule_and_the_graders_sum_is_the_log_ratio():
    rng = np.random.default_rng(2)
    policy, reference = (normalised(rng.normal(size=(30, 4)) * 3) for _ in range(2))
    assert words.lengths(4).tolist() == [1, 2, 3, 3]
    choices_ = words.token_logprobs(policy)
    assert np.exp(choices_).sum(axis=-1) == pytest.approx(1, abs=EXACT)
    for row, p in zip(choices_, policy, strict=True):
        spelled = [words.word(row, a) for a in range(4)]
        assert [len(w) for w in spelled] == [1, 2, 3, 3]
        assert [w.sum() for w in spelled] == pytest.approx(p, abs=EXACT)
    assert words.grades(policy, reference) == pytest.approx(policy - reference, abs=EXACT)
    # The mean of two tokens is half their sum.
    assert words.grades(policy, reference, "mean")[:, 1] == pytest.approx((policy - reference)[:, 1] / 2)


def test_centring_is_the_graders_token_by_token():
    rng = np.random.default_rng(3)
    policy, reference = (normalised(rng.normal(size=4)) for _ in range(2))
    ours, theirs = words.token_logprobs(policy), words.token_logprobs(reference)
    kls = [float(np.exp(p) @ (p - r)) for p, r in zip(ours, theirs, strict=True)]
    for a, n in enumerate((1, 2, 3, 3)):
        tokens = log_ratio(words.word(ours, a), words.word(theirs, a))
        expected = aggregate(centred(tokens, kls[:n]), "sum")
        ratio = (policy - reference)[a] - words.drift(policy, reference)[a]
        assert ratio == pytest.approx(expected, abs=EXACT)
    # Chain rule of the KL: that of the action is the mean of its tokens'.
    assert np.exp(policy) @ words.drift(policy, reference) == pytest.approx(kl(policy, reference), abs=EXACT)

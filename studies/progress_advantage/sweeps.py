"""How the grade fares as one thing changes: the world, the training, beta, the reference, the log-probs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

import numpy as np

from strop.seeds import generator
from strop.stats.intervals import Estimate
from studies.progress_advantage import training
from studies.progress_advantage.cases import BETA, Case, Row, at_optimum, ground, over_worlds, row
from studies.progress_advantage.mdp import Family, Floats, normalised, occupancy, random_policy, step_weights
from studies.progress_advantage.moments import step_correlation
from studies.progress_advantage.soft import kl, optimal_policy, soft_values

T = TypeVar("T")
CLIP = 0.2
CHANCES = (0.0, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0)
BETAS = (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0)
GRADIENT_STEPS = (1, 4, 16, 64, 256, 1024)
NATURAL_STEPS = (1, 2, 4, 8, 16, 32)
UPDATES = (1, 4, 16, 64, 256)
REFERENCE_NOISE = (0.0, 0.25, 0.5, 1.0, 2.0)
POLICY_NOISE = (0.0, 0.1, 0.25, 0.5, 1.0, 2.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """Training by clipping alone after some updates: the largest KL of the last one over states, the KL of an
    attempt to the reference, and the beta whose optimal advantage the log-ratio resembles most."""

    updates: int
    largest_update: float
    from_reference: Estimate
    likest_beta: float
    likeness: Estimate


def by_chance(n: int) -> list[Row]:
    """From worlds in which every action leads where it leads, to worlds in which all is chance."""
    return [row(f"{c:g}", c, at_optimum(*ground(n, Family(chance=c)))) for c in CHANCES]


def by_beta(n: int) -> list[Row]:
    """Trained, and graded, with another beta."""
    return [row(f"{b:g}", np.log10(b), at_optimum(*ground(n), b)) for b in BETAS]


def by_training(n: int, natural: bool) -> list[Row]:
    """Stopped early on the way to the optimum; placed by the share of the objective that is reached."""
    worlds, reference = ground(n)
    best = at_optimum(worlds, reference)
    if natural:
        ways, wanted = training.natural_gradient(worlds, reference, BETA, 1.0), NATURAL_STEPS
    else:
        ways, wanted = training.policy_gradient(worlds, reference, BETA, 10.0), GRADIENT_STEPS
    rows = [
        row(f"{k} step{'s' * (k > 1)}", _reached(best, policy), _acted(best, policy))
        for k, policy in _at(ways, wanted)
    ]
    return [*rows, row("optimum", 1.0, best)]


def by_clipping(n: int) -> tuple[list[Row], list[Drift]]:
    """Trained by clipping alone; placed by the share of the best play's success that is reached."""
    worlds, reference = ground(n)
    best = at_optimum(worlds, reference)
    others = [at_optimum(worlds, reference, beta) for beta in BETAS]
    updates = training.clipped(worlds, reference, CLIP, 0.5)
    rows, drifts = [], []
    for k, (before, policy) in _at(updates, UPDATES):
        rows.append(row(f"{k} update{'s' * (k > 1)}", np.log2(k), _acted(best, policy)))
        drifts.append(_drift(k, before, _acted(best, policy), others))
    return rows, drifts


def by_reference(n: int) -> list[Row]:
    """Against a reference that the policy was not trained from: the true one's logits with noise, uniform, or
    another random policy."""
    worlds, reference = ground(n)
    best, rng = at_optimum(worlds, reference), generator(0, "progress advantage", "reference")
    noise = random_policy(worlds, rng)
    wrong = {f"noise {s:g}": normalised(reference + s * noise) for s in REFERENCE_NOISE}
    wrong["uniform"] = normalised(np.zeros_like(reference))
    wrong["unrelated"] = noise
    places = [*REFERENCE_NOISE, REFERENCE_NOISE[-1], REFERENCE_NOISE[-1]]
    return [
        row(name, at, _read(best, reference=other))
        for at, (name, other) in zip(places, wrong.items(), strict=True)
    ]


def by_noise(n: int) -> list[Row]:
    """A policy that is the optimum but for noise in its logits, N(0, s²) for each step, state and action, as
    an approximator leaves it; attempts are its own."""
    worlds, reference = ground(n)
    best, rng = at_optimum(worlds, reference), generator(0, "progress advantage", "noise")
    noise = rng.normal(size=reference.shape)
    return [row(f"{s:g}", s, _acted(best, normalised(best.policy + s * noise))) for s in POLICY_NOISE]


def by_author(n: int) -> list[Row]:
    """The optimum grades attempts that are not its own."""
    worlds, reference = ground(n)
    best = at_optimum(worlds, reference)
    halfway = optimal_policy(worlds, reference, 2 * BETA)
    authors = {"the optimum": best.policy, "optimum at twice beta": halfway, "the reference": reference}
    return [row(name, 0.0, _read(best, acting=acting)) for name, acting in authors.items()]


def _at(ways: Iterable[T], wanted: Sequence[int]) -> list[tuple[int, T]]:
    return [(k, one) for k, one in enumerate(islice(ways, max(wanted)), 1) if k in wanted]


def _acted(best: Case, policy: Floats) -> Case:
    return _read(best, acting=policy, policy=policy)


def _read(
    best: Case, acting: Floats | None = None, policy: Floats | None = None, reference: Floats | None = None
) -> Case:
    return Case(
        worlds=best.worlds,
        acting=best.acting if acting is None else acting,
        policy=best.policy if policy is None else policy,
        reference=best.reference if reference is None else reference,
        truth=best.truth,
        beta=best.beta,
    )


def _reached(best: Case, policy: Floats) -> float:
    """(J − J of the reference) / (J of the optimum − J of the reference), summed over worlds."""
    worst, ours, most = (
        soft_values(best.worlds, p, best.reference, best.beta).v[:, 0, 0].sum()
        for p in (best.reference, policy, best.policy)
    )
    return float((ours - worst) / (most - worst))


def _drift(updates: int, before: Floats, case: Case, others: Sequence[Case]) -> Drift:
    weights = step_weights(case.worlds, case.policy)
    ratio = case.policy - case.reference
    alike = [step_correlation(weights, ratio, other.truth) for other in others]
    best = int(np.argmax([np.nanmean(one) for one in alike]))
    visited = occupancy(case.worlds, case.policy) * case.worlds.live
    moved = (visited * kl(case.policy, case.reference)).sum(axis=(1, 2))
    return Drift(
        updates=updates,
        largest_update=float(kl(case.policy, before).max()),
        from_reference=over_worlds(moved),
        likest_beta=BETAS[best],
        likeness=over_worlds(alike[best]),
    )

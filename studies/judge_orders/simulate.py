"""Groups with a known truth, judged by a simulated judge that favours places, under several calling plans.

Truth is drawn from N(0, 1). A call sees truth plus noise plus what the place is worth; the sum goes
through a logistic curve and is rounded to steps of 0.05, as judges write scores. Orders, combination and
reliability are the judge's own (`strop.judge`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from strop.judge.combine import Ballot, combine, reliability
from strop.judge.orders import balanced, parts
from strop.judge.settings import JudgeSettings
from strop.seeds import generator
from strop.stats.agreement import RatedGroup, kendall_tau

Array = NDArray[np.float64]
Order = Sequence[int]
Call = Callable[[Order], Ballot]
Effect = Literal["linear", "ends"]

NOISE = 0.7
NOISE_FROM, NOISE_TO = 0.2, 2.0
STEP = 0.05
FEW, MANY = 2, 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A size of group and a judge.

    `strength` is what standing first gains over standing last, in standard deviations of truth; below 0
    the last are favoured. Effect "ends" gives it to the first and the last place instead, and nothing to
    those between. `noise` None draws one for each group, evenly from NOISE_FROM to NOISE_TO.
    """

    attempts: int
    strength: float
    effect: Effect = "linear"
    noise: float | None = NOISE


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """Groups with their scores by plan ("fixed x2", ...), and the reliability of the mirrored two calls."""

    by_plan: Mapping[str, Sequence[RatedGroup]]
    reliability: Array

    def escalated(self, below: float) -> NDArray[np.bool_]:
        """Which groups get calls 3 and 4."""
        return self.reliability < below

    def mixed(self, plan: str, more: NDArray[np.bool_]) -> list[RatedGroup]:
        """The plan with MANY calls for the groups in `more`, with FEW for the others."""
        few, many = self.by_plan[f"{plan} x{FEW}"], self.by_plan[f"{plan} x{MANY}"]
        return [many[i] if longer else few[i] for i, longer in enumerate(more)]

    def default(self, below: float = JudgeSettings().escalate_below) -> list[RatedGroup]:
        """Order and reverse, and two further orders where their reliability is under `below`."""
        return self.mixed("mirrored", self.escalated(below))


def taus(groups: Sequence[RatedGroup]) -> Array:
    """Kendall's tau with truth of every group, NaN where there is none."""
    found = [kendall_tau(group) for group in groups]
    return np.array([np.nan if tau is None else tau for tau in found], dtype=np.float64)


def simulate(setting: Setting, groups: int, *path: str | int) -> Judged:
    """`groups` groups, from seeds that `path` and the setting name."""
    by_plan: dict[str, list[RatedGroup]] = {}
    agreement: list[float] = []
    for number in range(groups):
        rng = generator(0, *path, str(setting), number)
        truth = rng.standard_normal(setting.attempts)
        ballots = _ballots(setting, truth, rng)
        for name, cast in ballots.items():
            by_plan.setdefault(name, []).append(_rated(cast, truth))
        agreement.append(reliability(ballots[f"mirrored x{FEW}"]) or 0.0)
    return Judged(by_plan=by_plan, reliability=np.array(agreement))


def _ballots(setting: Setting, truth: Array, rng: np.random.Generator) -> dict[str, list[Ballot]]:
    n = setting.attempts
    call = _judge(setting, truth, rng)
    drawn = parts(n, "listwise", n, rng)[0]
    orders = {
        "fixed": [range(n)] * MANY,
        "random": [rng.permutation(n).tolist() for _ in range(MANY)],
        "mirrored": balanced(drawn, MANY),
        "cyclic": [drawn[k * n // MANY :] + drawn[: k * n // MANY] for k in range(MANY)],
    }
    cast = {name: [call(order) for order in chosen] for name, chosen in orders.items()}
    return {f"{name} x{calls}": cast[name][:calls] for name in cast for calls in (FEW, MANY)}


def _judge(setting: Setting, truth: Array, rng: np.random.Generator) -> Call:
    worth = _worth(setting)
    noise = rng.uniform(NOISE_FROM, NOISE_TO) if setting.noise is None else setting.noise

    def call(order: Order) -> Ballot:
        places = list(order)
        seen = truth[places] + noise * rng.standard_normal(len(places)) + worth
        steps = np.rint(1 / (1 + np.exp(-seen)) / STEP)
        return Ballot(scores={str(i): round(float(s) * STEP, 2) for i, s in zip(places, steps, strict=True)})

    return call


def _worth(setting: Setting) -> Array:
    """What each place adds to an attempt that stands there, [attempts]."""
    if setting.effect == "linear":
        return setting.strength * np.linspace(0.5, -0.5, setting.attempts)
    worth = np.zeros(setting.attempts)
    worth[[0, -1]] = setting.strength
    return worth


def _rated(ballots: Sequence[Ballot], truth: Array) -> RatedGroup:
    scores = combine(ballots, "mean", "listwise").scores
    return RatedGroup(scores=[scores[str(i)] for i in range(len(truth))], truths=truth.tolist())

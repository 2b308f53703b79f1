"""What labels of steps say beside the verbs: right steps told from wrong, and the agent behind a failure."""

from collections.abc import Mapping, Sequence

import numpy as np

from strop.grader.attribute import RULES, attributable
from strop.grader.baselines import GUESSES, STEPS, StepScore, each
from strop.grader.comparison import Comparison
from strop.grader.grade import Graded
from strop.grader.ratio import Floats
from strop.seeds import generator
from strop.stats.aurocs import resampled_aurocs
from strop.stats.intervals import Estimate, cluster_mean
from strop.trajectory.model import Trajectory
from studies.public_grades.logs import WRONG, speaker

GRADE = "progress advantage of the step"
PER_TOKEN = "progress advantage per token"
LOWEST = "agent of the lowest step"
LONGEST = "longest message"
Rules = Mapping[str, StepScore]


def wrong_steps(graded: Sequence[Graded], runs: Sequence[Trajectory], further: Rules) -> Comparison:
    """AUROC of "this step is right" by its grade: labels 1 and 0 against -1, over all graded steps.

    Nulls are every baseline of steps, `further` ones, and the step's place counted from the end (errors come
    late). Intervals resample scenarios.
    """
    labels = {run.trajectory_id: run.metadata["step_labels"] for run in runs}
    usable = [g for g in graded if g.steps]
    right = [float(labels[g.trajectory_id][s.index] != WRONG) for g in usable for s in g.steps]
    clusters = [g.scenario_id for g in usable for _ in g.steps]
    ours: Rules = {GRADE: each(lambda s: s.grade), PER_TOKEN: each(lambda s: s.mean)}
    nulls: Rules = {
        **{name: rule for name, rule in STEPS.items() if name not in GUESSES or name == "longest step"},
        "earlier in the run": lambda g: -np.arange(len(g.steps)) / len(g.steps),
        **further,
    }
    values = {name: _flat(usable, rule) for name, rule in {**ours, **nulls}.items()}
    aurocs = resampled_aurocs(right, values, clusters, generator(0, "public grades", "steps"))
    return Comparison(
        measure="AUROC of a right step",
        default=GRADE,
        results={name: aurocs.estimate(name) for name in ours},
        nulls={name: aurocs.estimate(name) for name in nulls},
        differences={name: aurocs.difference(GRADE, name) for name in nulls},
        excluded={"ungraded": len(graded) - len(usable)} if len(usable) < len(graded) else {},
    )


def agents(graded: Sequence[Graded], runs: Sequence[Trajectory], further: Rules) -> Comparison:
    """Share of failed logs whose deciding agent wrote the step that a rule names: exact match of names.

    Tied steps share the guess. Nulls: the guesses at a step, the longest message, the writer of message 1,
    whoever wrote most messages, and `further` ones. Intervals resample logs.
    """
    by_id = {run.trajectory_id: run for run in runs}
    usable = attributable(graded, 1.0)
    ours = {f"agent of the {name}": rule for name, rule in RULES.items()}
    nulls: Rules = {
        **GUESSES,
        "always step 1": each(lambda s: float(s.index != 1)),
        "whoever wrote most": lambda g: -_written(g, by_id[g.trajectory_id]),
        LONGEST: lambda g: _lengths(g, by_id[g.trajectory_id]),
        **further,
    }
    found = {
        name: np.array([named_agent(g, rule(g), by_id[g.trajectory_id]) for g in usable])
        for name, rule in {**ours, **nulls}.items()
    }
    rng, clusters = generator(0, "public grades", "agents"), [g.scenario_id for g in usable]

    def rate(values: Floats) -> Estimate:
        return cluster_mean(values, clusters, rng)

    return Comparison(
        measure="share of failed logs whose agent was named",
        default=LOWEST,
        results={name: rate(found[name]) for name in ours},
        nulls={name: rate(found[name]) for name in nulls},
        differences={name: rate(found[LOWEST] - found[name]) for name in nulls},
        excluded={"ungraded": len(graded) - len(usable)} if len(usable) < len(graded) else {},
    )


def named_agent(graded: Graded, suspicion: Floats, run: Trajectory) -> float:
    """Share of the most suspect steps [K] that the deciding agent wrote: 1, 0, or between where they tie."""
    named = [s for s, x in zip(graded.steps, suspicion, strict=True) if x == suspicion.min()]
    right = [speaker(run.messages[s.message_index]) == run.metadata["mistake_agent"] for s in named]
    return float(np.mean(right))


def shortness(run: Trajectory) -> list[float]:
    """Of each message, its characters with a minus: the longest is the most suspect. Calls have none."""
    return [-float(len(message.get("content") or "")) for message in run.messages]


def _lengths(graded: Graded, run: Trajectory) -> Floats:
    return np.array([shortness(run)[s.message_index] for s in graded.steps])


def _written(graded: Graded, run: Trajectory) -> Floats:
    """Of each step, how many of the graded steps its writer wrote."""
    writers = [speaker(run.messages[s.message_index]) for s in graded.steps]
    return np.array([float(writers.count(writer)) for writer in writers])


def _flat(graded: Sequence[Graded], rule: StepScore) -> Floats:
    return np.concatenate([rule(g) for g in graded]) if graded else np.zeros(0)

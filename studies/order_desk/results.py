"""The study's numbers: trainings, attempts, grades, other scores, and the three uses of each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from strop.app.progress import OnProgress, silent
from strop.grader.grade import Graded
from strop.seeds import generator
from strop.stats.intervals import cluster_mean
from strop.trajectory import codec
from strop.trajectory.grouping import grouped
from strop.trajectory.lines import write_objects
from studies.order_desk import grades, judged, values
from studies.order_desk.attempts import Actor, attempted, valued
from studies.order_desk.policies import Policy, adapter, policies, reference
from studies.order_desk.praise import praised
from studies.order_desk.setting import Setting
from studies.order_desk.uses import Question, Use, use

WARM = "warm-start"
WRONG, WITHOUT_KL = "wrong reference (bare model)", "trained without KL"
TOGETHER, BESIDE = "judge, a scenario's attempts together", "judge, each beside an idle attempt"
TRIED = 6
"""Scenarios on which the judge is tried with a single attempt a call."""
VALUES, GAINS = "Monte-Carlo values", "Monte-Carlo advantages"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """`given` run folders are used in place of trainings of the same seed and KL."""

    setting: Setting
    work: Path
    given: Sequence[Path] = ()
    progress: OnProgress = silent


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One training without KL: the uses of its grades on the warm start's attempts, against the reference
    it was trained from (`warm`) and against the bare model (`wrong`), on its `own` attempts, on half of
    each (`mixed`), and on those of the warm start's that have the `dear` baselines. `praised` of first wrong
    steps, by who attempted: how often the grade is above 0."""

    policy: Policy
    warm: Use
    wrong: Use
    own: Use
    mixed: Use
    dear: Use
    praised: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """`truths` by who attempted; `with_kl` the uses on the warm start's attempts by training; `judged` how
    many of how many calls gave a verdict, by how attempts were shown."""

    setting: Setting
    truths: Mapping[str, Mapping[str, Any]]
    measured: Sequence[Measured]
    with_kl: Mapping[str, Use]
    judged: Mapping[str, tuple[int, int]] = field(default_factory=dict)


def results(job: Job) -> Results:
    """All of it; what is in the work folder is not done again."""
    job.setting.keep_in(job.work)
    trained = policies(job.setting.seeds, job.setting.kl_seeds)
    clipped = [policy for policy in trained if not policy.kl_coef]
    desk = _Desk(job)
    measured = [desk.measured(policy) for policy in clipped]
    return Results(
        setting=job.setting,
        measured=measured,
        with_kl={policy.name: desk.with_kl(policy) for policy in trained if policy.kl_coef},
        truths={
            WARM: _truth(desk.warm()),
            **{policy.name: _truth(desk.own(policy)) for policy in clipped},
        },
        judged=desk.judged(),
    )


class _Desk:
    """The files of the work folder, made where they are missing."""

    def __init__(self, job: Job) -> None:
        self._job, self._work, self._setting = job, job.work, job.setting

    def measured(self, policy: Policy) -> Measured:
        """All uses of one training's grades."""
        warm, name = self.warm(), policy.name
        right, wrong = self._both(policy, warm)
        own, own_wrong = self._both(policy, self.own(policy))
        beside = {WRONG: self._scores(f"{name}-wrong", [*wrong, *own_wrong])}
        judge = {TOGETHER: judged.together(warm, self._work)}
        return Measured(
            policy=policy,
            warm=self._use(f"{name}-warm", warm, right, {**beside, **judge}),
            wrong=self._use(f"{name}-wrong", warm, wrong),
            own=self._use(f"{name}-own", self.own(policy), own, beside),
            mixed=self._use(f"{name}-mixed", self._mixed(policy), [*right, *own], beside),
            dear=self._use(f"{name}-dear", warm, right, {**judge, **self._dear()}),
            praised={WARM: praised(right), name: praised(own)},
        )

    def with_kl(self, policy: Policy) -> Use:
        """On the warm start's attempts; beside the training of the same seed without KL."""
        right, wrong = self._both(policy, self.warm())
        beside = {WRONG: self._scores(f"{policy.name}-wrong", wrong)}
        if policy.seed < self._setting.seeds:
            plain = Policy(seed=policy.seed)
            beside[WITHOUT_KL] = self._scores(plain.name, self._both(plain, self.warm())[0])
        return self._use(f"{policy.name}-warm", self.warm(), right, beside)

    def warm(self) -> Path:
        """The warm start's attempts."""
        return self._attempts(WARM, reference(), self._setting.scenarios)

    def own(self, policy: Policy) -> Path:
        """The trained policy's attempts."""
        return self._attempts(policy.name, self._adapter(policy), self._setting.own)

    def judged(self) -> dict[str, tuple[int, int]]:
        """How often the judge gave a verdict, in each form of question."""
        self._job.progress("judging")
        warm = self.warm()
        files = {
            "one attempt a call": judged.alone(warm, TRIED, self._work),
            BESIDE: judged.beside_an_idle_one(warm, self._setting.valued, self._work),
            TOGETHER: judged.together(warm, self._work),
        }
        return {name: judged.usable(file) for name, file in files.items()}

    def _dear(self) -> dict[str, Path]:
        """Baselines that cost model runs for each step, or a call for each attempt; of some attempts."""
        warm, some = self.warm(), self._setting.valued
        self._job.progress("Monte-Carlo values")
        actor = Actor(name=WARM, adapter=reference(), scenarios=some)
        found = valued(warm, actor, self._setting, self._work)
        self._job.progress("judging one by one")
        beside = judged.beside_an_idle_one(warm, some, self._work)
        return {BESIDE: beside, VALUES: found, GAINS: values.gains(found, warm)}

    def _attempts(self, name: str, by: Path, count: int) -> Path:
        self._job.progress(f"attempts of {name}")
        return attempted(Actor(name=name, adapter=by, scenarios=count), self._setting, self._work)

    def _adapter(self, policy: Policy) -> Path:
        self._job.progress(f"training {policy.name}")
        return adapter(policy, self._work / "runs", self._job.given)

    def _both(self, policy: Policy, attempts: Path) -> tuple[list[Graded], list[Graded]]:
        """Grades of attempts against the right reference, and against the wrong one."""
        by = self._adapter(policy)
        self._job.progress(f"grading {attempts.stem} by {policy.name}")
        out = self._work / "grades" / f"{attempts.stem}-by-{policy.name}.jsonl"
        found = list(grades.read(grades.graded(attempts, by, out)))
        right, wrong = ([grades.against(g, name) for g in found] for name in (grades.RIGHT, grades.WRONG))
        return right, wrong

    def _mixed(self, policy: Policy) -> Path:
        """The first half of a scenario's attempts by the warm start, and of those by the policy, where both
        attempted it."""
        out, half = self._work / "attempts" / f"{policy.name}-mixed.jsonl", self._setting.attempts // 2
        if not out.exists():
            both = [
                grouped(codec.read(file))[: self._setting.own] for file in (self.warm(), self.own(policy))
            ]
            codec.write(
                out, [one for groups in both for group in groups for one in group.trajectories[:half]]
            )
        return out

    def _scores(self, name: str, graded: Sequence[Graded]) -> Path:
        out = self._work / "scores" / f"{name}.jsonl"
        write_objects(out, grades.as_scores(graded))
        return out

    def _use(
        self, name: str, attempts: Path, graded: Sequence[Graded], beside: Mapping[str, Path] | None = None
    ) -> Use:
        self._job.progress(f"uses {name}")
        question = Question(name=name, attempts=attempts, graded=graded, baselines=beside or {})
        return use(question, self._work)


def _truth(attempts: Path) -> dict[str, Any]:
    known = [t for t in codec.read(attempts) if t.truth is not None]
    rng = generator(0, "order desk study", attempts.stem)
    found = cluster_mean([t.truth or 0.0 for t in known], [t.scenario_id for t in known], rng)
    return found.to_json()

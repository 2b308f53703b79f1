"""What one update trains on: rows with advantages, and for everything else the reason why not. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from strop.training.advantages import Scale, advantages
from strop.training.staleness import Bound, staleness
from strop.trajectory.model import Group, Trajectory
from strop.trajectory.tokens import Row, rows


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvantageRule:
    """How scores become advantages; see `strop.training.advantages`.

    With `judge_noise` the noise that a group's own judgements show is its floor, where it is known and
    above `noise_floor`.
    """

    scale: Scale = "std"
    leave_one_out: bool = False
    tolerance: float = 1e-6
    noise_floor: float = 0.0
    judge_noise: bool = True

    def floor(self, group: Group) -> float:
        """The spread below which the group is not scaled up."""
        known = self.judge_noise and group.noise is not None
        return max(self.noise_floor, group.noise or 0.0) if known else self.noise_floor


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """`advantages` has one number a row: that of its trajectory; `staleness` how many versions old it is.

    `groups` counts groups by fate (trained, tied, singleton, unscored, no_tokens, stale), `trajectories` by
    fate (trained, failed, unscored, tied, singleton, no_tokens, stale): each sums to all there were.
    `stale_rows` counts rows that were too old, of trajectories that would have been trained otherwise.
    `forks` counts rows beyond the first of every trajectory; `sampled_tokens` all that were sampled,
    `trained_tokens` those in `rows`.
    """

    rows: Sequence[Row]
    advantages: Sequence[float]
    groups: Mapping[str, int]
    trajectories: Mapping[str, int]
    forks: int
    sampled_tokens: int
    trained_tokens: int
    staleness: Sequence[int] = ()
    stale_rows: int = 0


GROUP_FATES = ("trained", "tied", "singleton", "unscored", "no_tokens", "stale")
TRAJECTORY_FATES = ("trained", "failed", "unscored", "tied", "singleton", "no_tokens", "stale")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Member:
    """What becomes of one attempt: its rows, those of them that are trained, and their staleness."""

    fate: str
    rows: Sequence[Row]
    trained: Sequence[Row]
    advantage: float
    staleness: Sequence[int]
    stale_rows: int


def training_batch(groups: Sequence[Group], rule: AdvantageRule, bound: Bound | None = None) -> Batch:
    """Advantages of all groups, given to the rows of their trajectories.

    The advantage belongs to the trajectory: each of its rows, and so each sampled token, carries it
    once, however many turns or branches there are. A scored attempt without recorded tokens, or whose rows
    are older than `bound` lets pass (None: all pass, as if sampled by the policy that is trained), counts in
    its group's baseline and trains nothing.
    """
    group_fates, everyone = Counter[str](), list[_Member]()
    for group in groups:
        dropped, members = _members(group, rule, bound)
        group_fates[dropped or _best(members)] += 1
        everyone += members
    fates = Counter(member.fate for member in everyone)
    trained = [(row, member.advantage) for member in everyone for row in member.trained]
    return Batch(
        rows=[row for row, _ in trained],
        advantages=[advantage for _, advantage in trained],
        groups={fate: group_fates[fate] for fate in GROUP_FATES},
        trajectories={fate: fates[fate] for fate in TRAJECTORY_FATES},
        forks=sum(max(0, len(member.rows) - 1) for member in everyone),
        sampled_tokens=sum(_sampled(member.rows) for member in everyone),
        trained_tokens=_sampled([row for row, _ in trained]),
        staleness=[age for member in everyone for age in member.staleness],
        stale_rows=sum(member.stale_rows for member in everyone),
    )


def _members(group: Group, rule: AdvantageRule, bound: Bound | None) -> tuple[str | None, list[_Member]]:
    """Why the whole group is dropped, if it is, and its attempts."""
    result = advantages(
        [_usable_score(member) for member in group.trajectories],
        scale=rule.scale,
        leave_one_out=rule.leave_one_out,
        tolerance=rule.tolerance,
        noise_floor=rule.floor(group),
    )
    dropped = result.dropped_reason
    values = result.values.tolist()
    members = [
        _member(trajectory, dropped, value, bound)
        for trajectory, value in zip(group.trajectories, values, strict=True)
    ]
    return dropped, members


def _member(trajectory: Trajectory, dropped: str | None, advantage: float, bound: Bound | None) -> _Member:
    own = rows(trajectory.trajectory_id, trajectory.turns)
    fate = _fate(trajectory, dropped, own)
    fresh: list[tuple[Row, int]] = []
    if fate == "trained":
        ages = [0 if bound is None else staleness(row, trajectory.turns, bound.version) for row in own]
        fresh = [(r, age) for r, age in zip(own, ages, strict=True) if bound is None or age <= bound.most]
    stale = len(own) - len(fresh) if fate == "trained" else 0
    return _Member(
        fate="stale" if fate == "trained" and not fresh else fate,
        rows=own,
        trained=[row for row, _ in fresh],
        advantage=advantage,
        staleness=[age for _, age in fresh],
        stale_rows=stale,
    )


def _best(members: Sequence[_Member]) -> str:
    """The fate of a group that was not dropped as a whole."""
    fates = {member.fate for member in members}
    return next(fate for fate in ("trained", "stale", "no_tokens") if fate in fates)


def _usable_score(member: Trajectory) -> float | None:
    return None if member.failure or member.unscored else member.score


def _fate(member: Trajectory, dropped: str | None, own: Sequence[Row]) -> str:
    if member.failure:
        return "failed"
    if _usable_score(member) is None:
        return "unscored"
    return dropped or ("trained" if own else "no_tokens")


def _sampled(own: Sequence[Row]) -> int:
    return sum(int(row.mask.sum()) for row in own)

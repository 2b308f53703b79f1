"""What one update trains on: rows with advantages, and for everything else the reason why not. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from strop.training.advantages import Scale, advantages
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
    """`advantages` has one number a row: that of its trajectory.

    `groups` counts groups by fate (trained, tied, singleton, unscored, no_tokens), `trajectories` by
    fate (trained, failed, unscored, tied, singleton, no_tokens): each sums to all there were.
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


GROUP_FATES = ("trained", "tied", "singleton", "unscored", "no_tokens")
TRAJECTORY_FATES = ("trained", "failed", "unscored", "tied", "singleton", "no_tokens")


def training_batch(groups: Sequence[Group], rule: AdvantageRule) -> Batch:
    """Advantages of all groups, given to the rows of their trajectories.

    The advantage belongs to the trajectory: each of its rows, and so each sampled token, carries it
    once, however many turns or branches there are. A scored attempt without recorded tokens counts
    in its group's baseline and trains nothing.
    """
    trained: list[tuple[Row, float]] = []
    group_fates, fates = Counter[str](), Counter[str]()
    forks = sampled = 0
    for group in groups:
        members = list(group.trajectories)
        result = advantages(
            [_usable_score(member) for member in members],
            scale=rule.scale,
            leave_one_out=rule.leave_one_out,
            tolerance=rule.tolerance,
            noise_floor=rule.floor(group),
        )
        before = len(trained)
        for member, value in zip(members, result.values.tolist(), strict=True):
            own = rows(member.trajectory_id, member.turns)
            forks += max(0, len(own) - 1)
            sampled += _sampled(own)
            fate = _fate(member, result.dropped_reason, own)
            fates[fate] += 1
            if fate == "trained":
                trained += [(row, value) for row in own]
        group_fates[result.dropped_reason or ("trained" if len(trained) > before else "no_tokens")] += 1
    return Batch(
        rows=[row for row, _ in trained],
        advantages=[value for _, value in trained],
        groups={fate: group_fates[fate] for fate in GROUP_FATES},
        trajectories={fate: fates[fate] for fate in TRAJECTORY_FATES},
        forks=forks,
        sampled_tokens=sampled,
        trained_tokens=_sampled([row for row, _ in trained]),
    )


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

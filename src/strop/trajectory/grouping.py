"""Trajectories as the groups they belong to."""

from collections.abc import Iterable

from strop.trajectory.model import Group, Trajectory


def grouped(trajectories: Iterable[Trajectory]) -> list[Group]:
    """Groups by group id, in the order of their first trajectories."""
    by_id: dict[str, list[Trajectory]] = {}
    for trajectory in trajectories:
        by_id.setdefault(trajectory.group_id, []).append(trajectory)
    return [
        Group(group_id=group_id, scenario_id=members[0].scenario_id, trajectories=tuple(members))
        for group_id, members in by_id.items()
    ]

"""Stop a run whose judge is dead, before it burns steps."""

from collections.abc import Sequence

from strop.errors import JudgeStopped
from strop.trajectory.model import Group


class JudgeWatch:
    """Counts judge failures in a row, over steps. `limit` in a row raise JudgeStopped; 0 never does.

    In the order of groups, so that whether a run stops does not hang on which call ended first.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._in_a_row = 0

    def look(self, groups: Sequence[Group], where: str) -> None:
        """Go through judged groups, of a step say. Raises JudgeStopped, one line with the last reason.

        A group in which no attempt ended well, or for whose scores no judge was asked (`Group.asked`), does
        not count: it tells nothing of the judge.
        """
        for group in groups:
            if all(member.failure for member in group.trajectories):
                continue
            reason = judge_failure(group)
            if reason is not None:
                self._in_a_row += 1
            elif group.asked:
                self._in_a_row = 0
            if self._limit and self._in_a_row >= self._limit:
                raise JudgeStopped(
                    f"{where}: no verdict for {self._in_a_row} groups in a row ({reason}); "
                    f"see to the judge, then resume: these will be done again"
                )


def judge_failure(group: Group) -> str | None:
    """Why the judge scored none of the attempts that ended well; None where it scored one."""
    ended = [member for member in group.trajectories if member.failure is None]
    if any(member.score is not None for member in ended):
        return None
    return next((member.unscored or "no score" for member in ended), None)

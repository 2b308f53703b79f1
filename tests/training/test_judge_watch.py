"""When a run stops for its judge: failures in a row in the order of groups, counted by hand."""

import pytest

from strop.errors import JudgeStopped
from strop.training.judge_watch import JudgeWatch
from strop.trajectory.model import Group, Trajectory


def group(score: float | None, *, asked: bool = True, failure: str | None = None) -> Group:
    unscored = "timeout" if score is None else None
    attempt = Trajectory(
        trajectory_id="t",
        scenario_id="s",
        group_id="g",
        messages=(),
        score=score,
        unscored=unscored,
        failure=failure,
    )
    return Group(group_id="g", scenario_id="s", trajectories=[attempt], asked=asked)


LOST, JUDGED, SAME = group(None), group(0.7), group(0.5, asked=False)
ENDED_BADLY = group(None, failure="deadline")


@pytest.mark.parametrize(
    ("groups", "limit", "stops"),
    [
        ([LOST, LOST], 2, True),
        ([LOST, JUDGED, LOST], 2, False),
        ([LOST, SAME, LOST], 2, True),
        ([LOST, ENDED_BADLY, LOST], 2, True),
        ([SAME, ENDED_BADLY], 1, False),
        ([LOST] * 9, 0, False),
    ],
)
def test_failures_in_a_row(groups: list[Group], limit: int, stops: bool) -> None:
    watch = JudgeWatch(limit)
    if stops:
        with pytest.raises(
            JudgeStopped, match=rf"^step 3: no verdict for {limit} groups in a row \(timeout\)"
        ):
            watch.look(groups, "step 3")
    else:
        assert watch.look(groups, "step 3") is None


def test_the_count_goes_on_over_steps() -> None:
    watch = JudgeWatch(3)
    watch.look([JUDGED, LOST], "step 0")
    watch.look([LOST], "step 1")
    with pytest.raises(JudgeStopped, match="step 2"):
        watch.look([SAME, LOST], "step 2")

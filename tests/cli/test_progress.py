"""Progress: the time left from hand arithmetic, and what each display prints."""

import io

import pytest

from strop.cli.progress import BarDisplay, LineDisplay, Progress, Stretch, duration, open_display


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Shown(list[tuple[str, str, int, int]]):
    def show(self, heading: str, left: str, done: int, total: int) -> None:
        self.append((heading, left, done, total))

    def close(self) -> None:
        self.clear()


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0:00"), (59.6, "1:00"), (125, "2:05"), (3725, "1:02:05"), (7199.9, "2:00:00")]
)
def test_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_time_left_of_a_stage() -> None:
    clock, shown = Clock(), Shown()
    progress = Progress(shown, clock)
    progress("rollout", 0, 10)
    clock.now += 4
    progress("rollout", 2, 10)
    assert shown == [("rollout", "", 0, 10), ("rollout", "0:16 left", 2, 10)]


def test_time_left_of_the_training_wins_once_a_step_is_done() -> None:
    clock, shown = Clock(), Shown()
    progress = Progress(shown, clock)
    progress("rollout", 0, 8, step=0, steps=12)
    clock.now += 20
    progress("rollout", 0, 8, step=1, steps=12)
    clock.now += 5
    progress("judge", 3, 8, step=1, steps=12)
    assert [entry[:2] for entry in shown] == [
        ("step 1/12  rollout", ""),
        ("step 2/12  rollout", "3:40 left"),
        ("step 2/12  judge", "3:35 left"),
    ]


def test_resumed_training_counts_only_its_own_steps() -> None:
    clock, shown = Clock(), Shown()
    progress = Progress(shown, clock)
    progress("rollout", step=5, steps=8)
    clock.now += 10
    progress("rollout", step=6, steps=8)
    assert shown[-1][1] == "0:20 left"


def test_last_step_is_not_counted_past_the_end() -> None:
    shown = Shown()
    Progress(shown, Clock())("publish", step=12, steps=12)
    assert shown[0][0] == "step 12/12  publish"


def test_pace_is_not_known_before_a_unit_is_done() -> None:
    assert Stretch("a", 0.0).left(5, 10.0) is None


def test_late_stretch_has_nothing_left_rather_than_less() -> None:
    stretch = Stretch("a", 0.0).at("a", 1, 2.0)
    assert stretch.left(2, 50.0) == 0.0


def test_lines_come_at_a_change_and_otherwise_seldom() -> None:
    clock, stream = Clock(), io.StringIO()
    display = LineDisplay(stream, every_s=15, clock=clock)
    display.show("rollout", "", 0, 8)
    clock.now += 5
    display.show("rollout", "0:10 left", 3, 8)
    clock.now += 10
    display.show("rollout", "0:05 left", 6, 8)
    display.show("judge", "", 0, 0)
    assert stream.getvalue().splitlines() == [
        "[0:00] rollout  0/8",
        "[0:15] rollout  6/8  0:05 left",
        "[0:15] judge",
    ]


def test_display_follows_the_stream() -> None:
    assert isinstance(open_display(io.StringIO()), LineDisplay)
    stream = io.StringIO()
    stream.isatty = lambda: True  # type: ignore[method-assign]
    bar = open_display(stream)
    assert isinstance(bar, BarDisplay)
    bar.show("rollout", "0:10 left", 3, 8)
    bar.close()


def test_display_is_closed_when_the_run_fails() -> None:
    shown = Shown([("a", "", 0, 0)])

    def fail() -> None:
        with Progress(shown, Clock()):
            raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011 - the error of the test itself
        fail()
    assert shown == []

"""What the demo's embedded judge says of the attempts: a scenario's together, or one at a time."""

from collections.abc import Sequence
from pathlib import Path

from strop import app
from strop.demo.clerk import Habits, demonstrate
from strop.demo.orders import STATUSES, by_id
from strop.judge.verdict import Verdict
from strop.seeds import generator
from strop.trajectory import codec
from strop.trajectory.atomic import replacing
from strop.trajectory.grouping import grouped
from strop.trajectory.lines import read_objects
from strop.trajectory.model import Trajectory

JUDGE = """mode = "{mode}"
orders = 1
max_tokens = {tokens}
timeout_s = 3600
deadline_s = 7200
max_failures_in_a_row = 0
cache = "{cache}"
"""
TOKENS = {"pointwise": 128, "listwise": 512}
IDLE = Habits(right_by_status=dict.fromkeys(STATUSES, 1.0), silent=1.0)


def together(attempts: Path, work: Path) -> Path:
    """Verdicts on each scenario's attempts shown in one call, as the judge was taught."""
    return _judged(attempts, "listwise", work)


def alone(attempts: Path, scenarios: int, work: Path) -> Path:
    """Verdicts on the attempts at the first scenarios, each in a call of its own."""
    some = work / "judge" / f"{attempts.stem}-alone-input.jsonl"
    if not some.exists():
        codec.write(some, _first(attempts, scenarios))
    return _judged(some, "pointwise", work)


def beside_an_idle_one(attempts: Path, scenarios: int, work: Path) -> Path:
    """The same, each beside an attempt that looks the order up and decides nothing: a group of two."""
    pairs = work / "judge" / f"{attempts.stem}-pairs-input.jsonl"
    if not pairs.exists():
        codec.write(pairs, [one for each in _first(attempts, scenarios) for one in _pair(each)])
    return _judged(pairs, "listwise", work)


def usable(verdicts: Path) -> tuple[int, int]:
    """Groups with scores, and all groups."""
    found = [Verdict.from_json(line).scores is not None for line in read_objects(verdicts)]
    return sum(found), len(found)


def _judged(attempts: Path, mode: str, work: Path) -> Path:
    """Replies are kept, so that a stopped call does not ask again."""
    folder = work / "judge"
    out, settings = folder / f"{attempts.stem}-{mode}.jsonl", folder / f"{mode}.toml"
    if not out.exists():
        text = JUDGE.format(mode=mode, tokens=TOKENS[mode], cache=(folder / "cache").absolute())
        with replacing(settings) as file:
            file.write(text.encode())
        app.judge_file(app.JudgeJob(file=attempts, out=out, judge=settings))
    return out


def _first(attempts: Path, scenarios: int) -> Sequence[Trajectory]:
    groups = grouped(codec.read(attempts))[:scenarios]
    return [trajectory for group in groups for trajectory in group.trajectories]


def _pair(one: Trajectory) -> tuple[Trajectory, Trajectory]:
    name = f"{one.trajectory_id}#idle"
    idle = demonstrate(by_id(one.scenario_id), IDLE, generator(0, name))
    group = f"{one.trajectory_id}#pair"
    return (
        Trajectory(
            trajectory_id=one.trajectory_id,
            scenario_id=one.scenario_id,
            group_id=group,
            messages=one.messages,
            tools=one.tools,
        ),
        Trajectory(
            trajectory_id=name,
            scenario_id=one.scenario_id,
            group_id=group,
            messages=idle.messages,
            tools=one.tools,
        ),
    )

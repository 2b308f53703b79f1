"""The study of public logs: what is drawn, its own arithmetic by hand, and a whole run on a tiny model."""

import json
from pathlib import Path

import numpy as np
import pytest
from studies.public_grades import __main__ as command
from studies.public_grades.found import Setting, log_found
from studies.public_grades.logs import PublicLog
from studies.public_grades.page import cell, to_json, to_markdown
from studies.public_grades.share import drawn
from studies.public_grades.steps import agents, named_agent, wrong_steps

from local_model import write_model
from strop.errors import InputError
from strop.grader.grade import Graded, StepGrade
from strop.trajectory.model import Trajectory

WORDS = ["go north", "look", "so be it", "far away", "yes, sure", "in the hall"]


def graded(name: str, grades: list[float], places: list[int] | None = None) -> Graded:
    """Steps at messages 1, 2, … unless `places` says which, all of them alike but for their grade."""
    numbers = places or list(range(1, len(grades) + 1))
    return Graded(
        trajectory_id=name,
        scenario_id=name,
        group_id=name,
        truth=0.0,
        first_wrong_step=numbers[-1],
        steps=tuple(
            StepGrade(
                index=number if places else number - 1,
                message_index=number,
                n_tokens=2,
                grade=value,
                mean=value / 2,
                policy_logprob=-1.0,
                reference_logprob=-1.0,
                entropy=1.0,
                self_certainty=1.0,
                deepconf=1.0,
            )
            for number, value in zip(numbers, grades, strict=True)
        ),
    )


def talk(name: str, speakers: list[str], agent: str) -> Trajectory:
    return Trajectory(
        trajectory_id=name,
        scenario_id=name,
        group_id=name,
        messages=tuple({"role": who, "content": "x" * (i + 1)} for i, who in enumerate(speakers)),
        metadata={"mistake_agent": agent},
    )


def attempts(scenarios: int, each: int) -> list[Trajectory]:
    return [
        Trajectory(
            trajectory_id=f"{s}/{k}", scenario_id=f"s{s}", group_id=f"s{s}", messages=({"role": "user"},)
        )
        for s in range(scenarios)
        for k in range(each)
    ]


def test_whole_scenarios_are_drawn_and_each_as_often() -> None:
    runs = attempts(10, 3)
    some = drawn(runs, 0.25, np.random.default_rng(0))
    assert len(some) == 9
    assert {len([r for r in some if r.scenario_id == s]) for s in {r.scenario_id for r in some}} == {3}
    assert drawn(runs, 1.0, np.random.default_rng(0)) == runs
    counts = dict.fromkeys((run.scenario_id for run in runs), 0)
    for seed in range(400):
        for scenario in {r.scenario_id for r in drawn(runs, 0.2, np.random.default_rng(seed))}:
            counts[scenario] += 1
    # 80 each are expected, with a standard deviation of 8.
    assert min(counts.values()) > 80 - 4 * 8
    assert max(counts.values()) < 80 + 4 * 8


def test_the_agent_of_the_step_that_is_named() -> None:
    run = talk("t", ["human", "Planner (thought)", "Coder", "Planner"], "Planner")
    one = graded("t", [1.0, -2.0, 0.0], [1, 2, 3])
    assert named_agent(one, np.array([1.0, -2.0, 0.0]), run) == 0
    assert named_agent(one, np.array([-3.0, -2.0, 0.0]), run) == 1
    assert named_agent(one, np.array([-2.0, -2.0, 0.0]), run) == 0.5
    assert named_agent(one, np.zeros(3), run) == pytest.approx(2 / 3)


def test_agents_beside_their_nulls() -> None:
    speakers = ["human", "Planner", "Coder", "Coder"]
    runs = [talk("a", speakers, "Coder"), talk("b", speakers, "Planner")]
    found = agents(
        [graded("a", [1.0, 0.0, 2.0], [1, 2, 3]), graded("b", [0.0, 1.0, 2.0], [1, 2, 3])], runs, {}
    )
    assert found.results["agent of the lowest step"].estimate == 1.0
    assert found.nulls["always step 1"].estimate == 0.5
    assert found.nulls["whoever wrote most"].estimate == 0.5
    assert found.nulls["longest message"].estimate == 0.5
    assert found.nulls["uniform guess"].estimate == pytest.approx(0.5)
    assert found.differences["always step 1"].estimate == 0.5


def test_right_steps_told_from_wrong_ones() -> None:
    """Right: 3, 1. Wrong: 2, 0. Of four pairs three are in order; places from the end order all four."""
    runs = [
        Trajectory(
            trajectory_id=name,
            scenario_id=name,
            group_id=name,
            messages=({"role": "user"},),
            metadata={"step_labels": labels},
        )
        for name, labels in (("a", [1, -1]), ("b", [0, -1]))
    ]
    found = wrong_steps([graded("a", [3.0, 2.0]), graded("b", [1.0, 0.0])], runs, {})
    assert found.results[found.default].estimate == 0.75
    assert found.results[found.default].n == 4
    assert found.nulls["earlier in the run"].estimate == 1.0
    assert found.nulls["longest step"].estimate == 0.5


def test_cells() -> None:
    assert cell({"estimate": 0.51234, "low": 0.4, "high": 0.6}) == "0.512 [0.400, 0.600]"
    assert cell({"estimate": None, "low": None, "high": None, "method": "none: one class only"}) == (
        "none: one class only"
    )


def tiny_log(folder: Path) -> list[Trajectory]:
    """Six scenarios of two attempts, of two or three steps; the second one fails at its second step."""
    runs = []
    for number in range(12):
        words = [WORDS[number % 6], "yes", WORDS[(number + 3) % 6]][: 2 + number % 2]
        messages = [m for w in words for m in ({"role": "user", "content": "well"}, said(w))]
        runs.append(
            Trajectory(
                trajectory_id=f"t{number}",
                scenario_id=f"s{number // 2}",
                group_id=f"s{number // 2}",
                messages=tuple(messages),
                truth=1.0 - number % 2,
                first_wrong_step=1 if number % 2 else None,
                metadata={"step_labels": [1, -1, -1][: len(words)] if number % 2 else [1] * len(words)},
            )
        )
    return runs


def said(content: str) -> dict[str, str]:
    return {"role": "assistant", "content": content}


@pytest.mark.usefixtures("one_thread")
def test_a_log_goes_all_the_way_to_the_page(tmp_path: Path, tiny_model: Path) -> None:
    log = PublicLog(name="Tiny, log", folder="", read=tiny_log, uses=("select", "predict", "attribute"))
    policy = str(write_model(tmp_path / "other", seed=4))
    setting = Setting(policy=policy, reference=str(tiny_model), model=str(tiny_model), share=0.5)
    found = log_found(log, setting, tmp_path)
    assert (found.drawn, found.whole) == ((6, 3), (12, 6))
    assert (found.graded["runs"], found.graded["unscored_steps"]) == (6, 0)
    assert found.found["select"]["results"]["oracle"]["estimate"] == 1.0
    assert found.found["attribute"]["runs"] == 6
    assert found.found["steps"]["results"]["progress advantage of the step"]["n"] == found.graded["steps"]
    page = to_markdown(setting, [found], embedded=True)
    for words in (
        "smoke of the pipeline",
        "| Tiny, log | 6 of 12 | 3 of 6 | 6 |",
        "always step 1",
        "not beat",
    ):
        assert words in page
    assert str(tmp_path) not in page
    assert json.loads(json.dumps(to_json(setting, [found]), allow_nan=False))["share"] == 0.5
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*-grades.jsonl")}
    log_found(log, setting, tmp_path)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.glob("*-grades.jsonl")} == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["--share", "0"], "--share 0"), (["--policy", "RUN"], "holds no checkpoint")],
)
def test_wrong_options_are_one_line(
    arguments: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "run.toml").write_text("")
    named = [str(tmp_path) if word == "RUN" else word for word in arguments]
    monkeypatch.setattr("sys.argv", ["public_grades", *named, "--work", str(tmp_path / "work")])
    assert command.main() == InputError.exit_code
    out = capsys.readouterr().err.strip().splitlines()
    assert said in out[-1]
    assert len(out) == 1

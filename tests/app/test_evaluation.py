"""Evaluations every k steps of a whole run: what is recorded, which policy is best, when it ends early."""

import json
from pathlib import Path
from typing import Any

import pytest
from toy_project import LetterJudge, write_project

from strop import app
from strop.cli.main import main
from strop.config import load
from strop.errors import JudgeStopped
from strop.store import checkpoints
from strop.store.run import Run

EVERY = ("evaluation.every=1", "training.steps=3", "evaluation.heldout=3", "evaluation.judged_groups=0")


def trained(run_toml: Path, *overrides: str, resume: bool = False, progress: Any = None) -> dict[str, Any]:
    told = {"progress": progress} if progress else {}
    return app.train(load(run_toml, [*EVERY, *overrides]), resume=resume, **told)


def without_seconds(run: Run) -> list[dict[str, Any]]:
    return [
        {key: value for key, value in line.items() if key != "seconds"}
        for line in [*run.steps(), *run.evaluations()]
    ]


def a_rate(run: Run, part: str) -> float:
    """By hand, from what was kept: how often the judge gave the policy's attempt more."""
    scores: dict[str, dict[str, list[float]]] = {}
    own = {t.trajectory_id: t for p in run.parts("trajectories") for t in run.read_trajectories(p)}
    for one in run.read_trajectories(part):
        whose = own[one.metadata["attempt_id"]]
        assert whose.messages == one.messages
        assert ("heldout-before" in whose.trajectory_id) == (one.metadata["side"] == "start")
        assert one.score is not None
        assert (one.score > 0) == ("a" in str(one.messages[-1]["content"]))
        scores.setdefault(one.scenario_id, {}).setdefault(one.metadata["side"], []).append(one.score)
    assert sorted(scores) == ["word-5", "word-6"]
    won = [
        (mine > theirs) + 0.5 * (mine == theirs)
        for sides in scores.values()
        for mine in sides["policy"]
        for theirs in sides["start"]
    ]
    assert len(won) == 8
    return sum(won) / 8


def words(run: Run, part: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for one in run.read_trajectories(part):
        found.setdefault(one.scenario_id, []).append(str(one.messages[-1]["content"]))
    return found


def test_truth_win_rate_and_best_are_recorded_and_shown(
    tmp_path: Path, tiny_model: Path, judge: LetterJudge
) -> None:
    run_toml = write_project(tmp_path, tiny_model, judge.url)
    told: list[str] = []
    summary = trained(
        run_toml,
        "evaluation.attempts=2",
        "evaluation.compared_groups=2",
        progress=lambda stage, *_, **__: told.append(stage),
    )
    run = Run.view(tmp_path / "runs" / "run")
    lines = run.evaluations()
    assert [line["steps"] for line in lines] == [0, 1, 2, 3]
    parts = ["heldout-before", "heldout-0001", "heldout-0002", "heldout-0003"]
    assert [line["part"] for line in lines] == parts
    assert run.parts("verdicts") == [
        "train-0000", "train-0001", "train-0002", "versus-0001", "versus-0002", "versus-0003",
    ]  # fmt: skip
    for line in lines:
        now = words(run, line["part"])
        said = [text for texts in now.values() for text in texts]
        assert line["truth"]["estimate"] == pytest.approx(
            sum(any(vowel in text for vowel in "aeiou") for text in said) / 6
        )
        if line["steps"]:
            rate = a_rate(run, f"versus-{line['steps']:04d}")
            assert line["win_rate"]["estimate"] == pytest.approx(rate)
            assert (line["win_rate"]["n"], line["win_rate"]["clusters"]) == (8, 2)
    assert lines[0]["win_rate"] is None
    sides = [t.metadata["side"] for t in run.read_trajectories("versus-0002")]
    assert sorted(sides) == ["policy"] * 4 + ["start"] * 4
    assert summary["win_rate"] == lines[3]["win_rate"]
    assert summary["evaluations"] == lines
    assert summary["truth_after"]["estimate"] == pytest.approx(lines[3]["truth"]["estimate"])
    assert words(run, "heldout-after") == words(run, "heldout-0003")
    best = max(lines, key=lambda line: (line["truth"]["estimate"], -line["steps"]))
    assert summary["best"]["steps"] == best["steps"]
    assert summary["best"]["by"] == "truth"
    pointed = checkpoints.best(run)
    assert (pointed and pointed.path.name) == best["checkpoint"]
    assert any(stage.startswith(("evaluated: truth 0.", "evaluated: truth 1.")) for stage in told)
    page = (run.path / "report.html").read_text(encoding="utf-8")
    assert "Win rate over the start" in page
    assert summary["seconds"]["evaluation"] > 0


NO_TRUTH = """
async def run(client, scenario):
    messages = [{"role": "user", "content": scenario.data["word"]}]
    made = await client.chat.completions.create(model="policy", messages=messages, max_tokens=12)
    return [*messages, {"role": "assistant", "content": made.choices[0].message.content or ""}]
"""


def test_without_gain_it_ends_early_by_win_rate_and_resumes_to_the_same_end(
    tmp_path: Path, tiny_model: Path, judge: LetterJudge
) -> None:
    """At a learning rate of nearly nothing greedy attempts stay what they were: every comparison is a tie."""
    run_toml = write_project(tmp_path, tiny_model, judge.url, NO_TRUTH)
    how = (
        "training.learning_rate=1e-9",
        "evaluation.temperature=0",
        "evaluation.patience=2",
        "training.steps=6",
    )
    summary = trained(run_toml, *how)
    run = Run.view(tmp_path / "runs" / "run")
    assert summary["steps"] == 2
    assert [line["steps"] for line in run.evaluations()] == [0, 1, 2]
    assert [line["truth"] for line in run.evaluations()] == [None] * 3
    assert [line["win_rate"]["estimate"] for line in run.evaluations()[1:]] == [0.5, 0.5]
    assert summary["best"] == {"steps": 0, "by": "win_rate", "win_rate": 0.5, "checkpoint": None}
    assert checkpoints.best(run) is None
    assert {t.turns[0].temperature for t in run.read_trajectories("heldout-0001")} == {0.0}
    assert {t.turns[0].temperature for t in run.read_trajectories("train-0000")} == {1.0}
    assert run.events()[-1]["kind"] == "stopped_early"
    before = without_seconds(run)
    assert trained(run_toml, *how, resume=True)["steps"] == 2
    assert without_seconds(run) == before


def said_and_scored(run: Run, part: str) -> list[Any]:
    return [(t.trajectory_id, t.messages, t.score, t.truth, t.metadata) for t in run.read_trajectories(part)]


class Killed(BaseException):
    """Stands for kill -9."""


@pytest.fixture(scope="module")
def uninterrupted(
    tmp_path_factory: pytest.TempPathFactory, tiny_model: Path
) -> tuple[Path, list[dict[str, Any]]]:
    from toy_project import letter_judge

    folder = tmp_path_factory.mktemp("straight")
    with letter_judge() as running:
        trained(write_project(folder, tiny_model, running.url), "evaluation.attempts=2")
    return folder, without_seconds(Run.view(folder / "runs" / "run"))


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("when", [0, 1])
@pytest.mark.parametrize(
    "boundary", ["append_evaluation", "write_verdicts", "write_trajectories", "point_best"]
)
def test_killed_in_an_evaluation_it_resumes_to_the_same_end(
    tmp_path: Path,
    tiny_model: Path,
    judge: LetterJudge,
    uninterrupted: tuple[Path, list[dict[str, Any]]],
    boundary: str,
    when: int,
    after: bool,
) -> None:
    run_toml = write_project(tmp_path, tiny_model, judge.url)
    owner: Any = checkpoints if boundary == "point_best" else Run
    real, left = getattr(owner, boundary), [when]

    def called(*args: Any, **kwargs: Any) -> Any:
        if boundary.startswith("write") and not str(args[1]).startswith(("versus", "heldout-0")):
            return real(*args, **kwargs)
        left[0] -= 1
        if left[0] < 0 and not after:
            raise Killed
        result = real(*args, **kwargs)
        if left[0] < 0:
            raise Killed
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, boundary, called)
        try:
            trained(run_toml, "evaluation.attempts=2")
        except Killed:
            trained_again = True
        else:
            trained_again = False
    if boundary != "point_best":
        assert trained_again
    trained(run_toml, "evaluation.attempts=2", resume=True)
    folder, expected = uninterrupted
    run, other = (Run.view(path / "runs" / "run") for path in (tmp_path, folder))
    assert without_seconds(run) == expected
    best, others = checkpoints.best(run), checkpoints.best(other)
    assert (best and best.path.name) == (others and others.path.name)
    for part in other.parts("trajectories"):
        assert said_and_scored(run, part) == said_and_scored(other, part)


def test_a_run_that_is_set_back_forgets_what_came_after(
    tmp_path: Path, tiny_model: Path, judge: LetterJudge
) -> None:
    """Someone points latest back to step 0, as one would after a bad update."""
    run_toml = write_project(tmp_path, tiny_model, judge.url)
    trained(run_toml, "training.steps=2")
    run = Run.view(tmp_path / "runs" / "run")
    expected = without_seconds(run)
    (run.path / "checkpoints" / "latest").write_text("0000\n")
    trained(run_toml, "training.steps=2", resume=True)
    assert without_seconds(run) == expected


def test_a_dead_judge_stops_the_comparison_and_leaves_no_line(
    tmp_path: Path, tiny_model: Path, judge: LetterJudge
) -> None:
    """Step 0 asks 4 times (2 groups, 2 orders); then nobody answers. Resumed, it is all there."""
    run_toml = write_project(tmp_path, tiny_model, judge.url)
    judge.good = 4
    with pytest.raises(JudgeStopped, match="versus-0001: no verdict for 2 groups in a row"):
        trained(run_toml, "training.steps=1")
    run = Run.view(tmp_path / "runs" / "run")
    assert [line["steps"] for line in run.evaluations()] == [0]
    judge.good = 1 << 30
    trained(run_toml, "training.steps=1", resume=True)
    assert [line["steps"] for line in run.evaluations()] == [0, 1]
    assert run.evaluations()[1]["win_rate"]["estimate"] is not None


@pytest.mark.parametrize(
    ("overrides", "problem"),
    [
        (("evaluation.heldout=0",), "every = 1, but heldout is 0"),
        (("evaluation.every=0", "evaluation.patience=1"), "patience = 1, but every is 0"),
    ],
)
def test_what_cannot_be_is_said_before_anything_is_loaded(
    tmp_path: Path,
    tiny_model: Path,
    capsys: pytest.CaptureFixture[str],
    overrides: tuple[str, ...],
    problem: str,
) -> None:
    run_toml = write_project(tmp_path, tiny_model, "http://unused")
    given = [word for text in (*EVERY, *overrides) for word in ("--set", text)]
    assert main(["train", str(run_toml), *given]) == 2
    assert problem in capsys.readouterr().err


def test_patience_without_anything_to_tell_a_gain_is_refused(
    tmp_path: Path, tiny_model: Path, judge: LetterJudge, capsys: pytest.CaptureFixture[str]
) -> None:
    run_toml = write_project(tmp_path, tiny_model, judge.url, NO_TRUTH)
    given = [*EVERY, "evaluation.patience=1", "evaluation.compared_groups=0"]
    assert main(["train", str(run_toml), *(w for text in given for w in ("--set", text))]) == 2
    assert "nothing tells a gain" in capsys.readouterr().err


def test_where_nothing_is_asked_for_nothing_is_added(
    tmp_path: Path, tiny_model: Path, judge: LetterJudge, capsys: pytest.CaptureFixture[str]
) -> None:
    run_toml = write_project(tmp_path, tiny_model, judge.url)
    assert main(["train", str(run_toml), "--set", "training.steps=1", "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert not {"best", "win_rate", "evaluations"} & summary.keys()
    run = Run.view(tmp_path / "runs" / "run")
    assert run.evaluations() == []
    assert "Win rate over the start" not in (run.path / "report.html").read_text(encoding="utf-8")

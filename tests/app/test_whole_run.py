"""From a user's files to a finished run directory, with what can go wrong on the way."""

import io
import json
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from toy_project import LetterJudge, letter_judge, write_project

from strop import app
from strop.cli.main import main
from strop.config import load
from strop.engine import Engine
from strop.errors import JudgeStopped
from strop.store import checkpoints
from strop.store.run import Run

INTERVALS = ("truth_before", "truth_after", "judge_agreement", "grader_auroc")


@dataclass(frozen=True)
class Done:
    """A finished run: its directory, what was printed, and the steps without their seconds."""

    path: Path
    printed: str

    @property
    def run(self) -> Run:
        return Run.view(self.path)

    @property
    def summary(self) -> dict[str, Any]:
        return json.loads(self.printed)  # type: ignore[no-any-return]


def without_seconds(run: Run) -> list[dict[str, Any]]:
    return [{key: value for key, value in line.items() if key != "seconds"} for line in run.steps()]


def trained(run_toml: Path, *overrides: str, resume: bool = False) -> dict[str, Any]:
    return app.train(load(run_toml, overrides), resume=resume)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Done:
    """`strop train run.toml --json`, once."""
    folder = tmp_path_factory.mktemp("whole")
    with letter_judge() as judge, redirect_stdout(io.StringIO()) as out:
        assert main(["train", str(write_project(folder, tiny_model, judge.url)), "--json"]) == 0
    return Done(path=folder / "runs" / "run", printed=out.getvalue())


def test_one_object_with_what_is_promised_is_printed(done: Done) -> None:
    assert done.printed.count("\n") == 1
    summary = done.summary
    for name in INTERVALS:
        assert {"estimate", "low", "high", "n", "method"} <= summary[name].keys()
    assert summary["truth_before"]["n"] == summary["truth_after"]["n"] == 2
    assert 0 <= summary["tied_share"] <= 1
    assert summary["unscored"] == 0
    assert summary["steps"] == 2
    assert summary["seconds"].keys() >= {
        "loading", "heldout-before", "judged-heldout", "rollout", "judge", "update", "publish",
        "heldout-after", "grading", "audits",
    }  # fmt: skip
    assert all(seconds >= 0 for seconds in summary["seconds"].values())
    assert 50 < summary["peak_rss_mb"] < 100_000
    assert Path(summary["run"]) == done.path
    assert Path(summary["report"]).is_file()


def test_the_run_directory_is_whole(done: Done) -> None:
    run = done.run
    parts = ["heldout-after", "heldout-before", "judged-heldout", "train-0000", "train-0001"]
    assert run.parts("trajectories") == parts
    assert run.parts("verdicts") == ["judged-heldout", "train-0000", "train-0001"]
    assert run.parts("grades") == ["heldout-before"]
    assert run.summary() == done.summary
    assert [line["step"] for line in run.steps()] == [0, 1]
    latest = checkpoints.latest(run)
    assert latest is not None
    assert latest.step == 1
    assert "<html" in (done.path / "report.html").read_text(encoding="utf-8")
    assert load(run.config_path) == load(done.path.parents[1] / "run.toml")
    expected = [event for event in run.events() if event["kind"] == "judge_forecast"]
    assert [event["groups_left"] for event in expected] == [2, 0]
    assert all(event["money"] is None for event in expected)
    assert all(event["calls"].keys() >= {"estimate", "low", "high", "n", "method"} for event in expected)


def test_the_judge_scored_every_attempt_and_its_scores_trained(done: Done) -> None:
    """3 attempts of 2 scenarios a step. The score is the judge's rule applied to the attempt's own words."""
    for part in ("train-0000", "train-0001"):
        attempts = list(done.run.read_trajectories(part))
        assert len(attempts) == 6
        for one in attempts:
            said = str(one.messages[-1]["content"])
            assert one.score is not None
            assert (one.score > 0) == ("a" in said)
            assert one.truth == float(any(vowel in said for vowel in "aeiou"))
            assert [len(turn.logprobs) for turn in one.turns] == [len(one.turns[0].sampled_ids)]
    assert [turn.policy_version for t in done.run.read_trajectories("train-0001") for turn in t.turns] == [
        1
    ] * 6


def test_heldout_scenarios_are_never_trained_on(done: Done) -> None:
    heldout = {t.scenario_id for t in done.run.read_trajectories("heldout-before")}
    assert heldout == {"word-6", "word-7"}
    assert heldout == {t.scenario_id for t in done.run.read_trajectories("judged-heldout")}
    for part in ("train-0000", "train-0001"):
        assert not heldout & {t.scenario_id for t in done.run.read_trajectories(part)}


def test_grades_are_not_zero_after_training(done: Done) -> None:
    """The reference is the start: an untrained policy would give exactly 0 everywhere."""
    lines = done.run.read_grades("heldout-before")
    assert [line["trajectory_id"] for line in lines] == [
        "word-6/heldout-before/0",
        "word-7/heldout-before/0",
    ]
    assert all(step["grade"] != 0 for line in lines for step in line["steps"])


def test_a_directory_in_use_is_refused_before_anything_is_loaded(
    done: Done, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("strop.app.building.engine", lambda _config: pytest.fail("a model was loaded"))
    before = {path: path.read_bytes() for path in done.path.rglob("*") if path.is_file()}
    assert main(["train", str(done.path.parents[1] / "run.toml")]) == 2
    assert "a run is there already" in capsys.readouterr().err
    assert before == {path: path.read_bytes() for path in done.path.rglob("*") if path.is_file()}


def test_a_dead_judge_stops_the_run_and_resume_ends_it_the_same(
    tmp_path: Path, tiny_model: Path, judge: LetterJudge, done: Done
) -> None:
    """2 held-out groups and step 0 are judged by 2 calls a group, then it breaks; 2 in a row are enough."""
    run_toml = write_project(tmp_path, tiny_model, judge.url)
    judge.good = 8
    with pytest.raises(JudgeStopped, match="step 1: no verdict for 2 groups in a row"):
        trained(run_toml)
    run = Run.view(tmp_path / "runs" / "run")
    assert len(run.steps()) == 1
    assert run.summary() is None
    judge.good = 1 << 30
    trained(run_toml, resume=True)
    assert without_seconds(run) == without_seconds(done.run)


def test_a_judge_that_never_answers_stops_before_training_and_leaves_no_verdict(
    tmp_path: Path, tiny_model: Path, judge: LetterJudge, capsys: pytest.CaptureFixture[str]
) -> None:
    """A resumed run asks again, or there would never be an audit of the judge."""
    judge.good = 0
    run_toml = write_project(tmp_path, tiny_model, judge.url)
    assert main(["train", str(run_toml), "--set", "judge.max_failures_in_a_row=50"]) == 3
    assert "judged-heldout: no verdict for 2 groups in a row (transport)" in capsys.readouterr().err
    run = Run.view(tmp_path / "runs" / "run")
    assert run.parts("verdicts") == []
    assert run.events()[-1]["kind"] == "judge_stopped"
    judge.good = 1 << 30
    summary = trained(run_toml, "training.steps=1", resume=True)
    assert len(run.read_verdicts("judged-heldout")) == 2
    assert summary["steps"] == 1


def test_a_wrong_key_is_one_line_and_exit_code_3(
    tmp_path: Path,
    tiny_model: Path,
    judge: LetterJudge,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("TOY_JUDGE_KEY", "wrong")
    assert main(["train", str(write_project(tmp_path, tiny_model, judge.url))]) == 3
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith(f"strop: judge 'letters' at {judge.url}: the key was refused (401)")
    assert judge.asked == 0
    assert judge.refused > 0


UNRULY = """
import asyncio

hung = []

async def run(client, scenario):
    messages = [{"role": "user", "content": scenario.data["word"]}]
    if scenario.scenario_id == "word-0":
        raise RuntimeError("no idea")
    if scenario.scenario_id == "word-1":
        return messages
    made = await client.chat.completions.create(model="policy", messages=messages, max_tokens=12)
    if scenario.scenario_id == "word-2" and len(hung) < 2:
        hung.append(scenario)
        await asyncio.sleep(600)
    if scenario.scenario_id in ("word-2", "word-3"):
        return {"rubbish": object()}
    if scenario.scenario_id == "word-4":
        raise SystemExit("done")
    if scenario.scenario_id == "word-5":
        await client.chat.completions.create(model="gpt-9", messages=messages)
    return [*messages, {"role": "assistant", "content": made.choices[0].message.content or ""}]


def truth(scenario, messages):
    return 7.0 if scenario.scenario_id == "word-6" else None
"""

FAILURES = {
    "word-0": "agent raised: RuntimeError: no idea",
    "word-1": "no model call",
    "word-2": "deadline: no end after 8 s",
    "word-3": "agent returned dict, not a list of messages or None",
    "word-4": "agent raised: SystemExit: done",
    "word-5": "agent raised: NotFoundError",
}
LATER = FAILURES | {"word-2": FAILURES["word-3"]}


def test_unruly_agents_are_recorded_failures_and_the_run_goes_on(
    tmp_path: Path, tiny_model: Path, judge: LetterJudge, monkeypatch: pytest.MonkeyPatch
) -> None:
    from strop.engines.local.sampler import LocalSampler

    # How long the others wait for an agent that hangs.
    monkeypatch.setitem(LocalSampler.__init__.__kwdefaults__, "patience", 0.2)
    run_toml = write_project(tmp_path, tiny_model, judge.url, UNRULY)
    summary = trained(
        run_toml,
        "evaluation.heldout=0",
        "rollout.groups_per_step=8",
        "rollout.attempts=2",
        "rollout.deadline_s=8.0",
        "training.steps=2",
    )
    assert summary["steps"] == 2
    assert summary["unscored"] == 2 * 12
    run = Run.view(tmp_path / "runs" / "run")
    for part, failures in (("train-0000", FAILURES), ("train-0001", LATER)):
        for one in run.read_trajectories(part):
            expected = failures.get(one.scenario_id)
            assert (one.failure or "").startswith(expected or ""), one.scenario_id
            assert (one.failure is None) == (expected is None)
            assert (one.score is None) == (expected is not None)
            if one.scenario_id == "word-6":
                assert one.truth is None
                assert "must be a number from 0 to 1" in one.metadata["truth_error"]
    assert [line["trajectories"]["failed"] for line in run.steps()] == [12, 12]
    assert summary["truth_before"]["estimate"] is None


def test_the_embedded_judge_is_served_beside_the_policy(tmp_path: Path, tiny_model: Path, done: Done) -> None:
    """A random model is no judge: its replies are read, found wanting, and stop the run in one line."""
    adapter = done.path / "checkpoints" / "0001" / "adapter"
    run_toml = write_project(tmp_path, tiny_model, "unused")
    text = run_toml.read_text().split("[judge]")[0] + f'[judge]\nadapter = "{adapter}"\nmax_tokens = 8\n'
    run_toml.write_text(text + "max_failures_in_a_row = 2\n[evaluation]\nheldout = 2\njudged_groups = 2\n")
    with pytest.raises(JudgeStopped, match="judged-heldout: no verdict for 2 groups in a row"):
        trained(run_toml, "model.max_length=512")


def test_an_embedded_judge_that_does_not_fit_is_named(
    tmp_path: Path, tiny_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_toml = write_project(tmp_path, tiny_model, "unused")
    text = run_toml.read_text().split("[judge]")[0]
    run_toml.write_text(text + f'[judge]\nadapter = "{tmp_path}"\n')
    assert main(["train", str(run_toml)]) == 2
    assert "[judge] the embedded judge cannot be served over this model" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_an_engine_is_closed_when_the_run_cannot_begin(
    tmp_path: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from strop.engines.local.engine import LocalEngine

    closed: list[Engine] = []
    close = LocalEngine.close
    monkeypatch.setattr(LocalEngine, "close", lambda self: (closed.append(self), close(self)))
    monkeypatch.delenv("TOY_JUDGE_KEY")
    assert main(["train", str(write_project(tmp_path, tiny_model, "http://127.0.0.1:9/v1"))]) == 2
    assert len(closed) == 1
    assert not (tmp_path / "runs").exists()

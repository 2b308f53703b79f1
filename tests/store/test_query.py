"""SQL over the files of a run, whichever of them are there."""

import subprocess
import sys
from pathlib import Path

import pytest

from strop.errors import InputError
from strop.store.query import query
from strop.store.run import Run
from strop.trajectory.model import Trajectory, Turn


def attempt(name: str, **fields: object) -> Trajectory:
    turn = Turn(prompt_ids=(1,), sampled_ids=(2,), logprobs=(-0.5,), finish_reason="stop", message_index=0)
    return Trajectory(
        trajectory_id=name,
        scenario_id="s",
        group_id="g",
        messages=({"role": "user", "content": "é\u2028"},),
        turns=(turn,),
        **fields,  # type: ignore[arg-type]
    )


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.create(tmp_path / "it's [a] *run*?", "")


def test_a_fresh_run_has_every_view_and_no_row(run: Run) -> None:
    for view in ("trajectories", "steps", "events", "verdicts", "grades"):
        assert query(run, f"SELECT * FROM {view}") == []
    assert query(run, "SELECT part, truth, messages, unscored FROM trajectories") == []


def test_trajectories_of_all_parts_with_their_part(run: Run) -> None:
    run.write_trajectories("train-0000", [attempt("a", truth=1.0, score=0.75), attempt("b", truth=0.0)])
    run.write_trajectories("train-0001", [attempt("c", unscored="timeout", metrics={"cost": 2.5})])
    run.write_trajectories("heldout-before", [])
    assert query(
        run,
        "SELECT part, trajectory_id, truth, score, unscored, metrics->>'cost' AS cost, "
        "messages->0->>'content' AS said, (turns->0->'logprobs'->>0)::DOUBLE AS logprob "
        "FROM trajectories ORDER BY trajectory_id",
    ) == [
        dict(
            zip(
                ("part", "trajectory_id", "truth", "score", "unscored", "cost", "said", "logprob"),
                row,
                strict=True,
            )
        )
        for row in (
            ("train-0000", "a", 1.0, 0.75, None, None, "é\u2028", -0.5),
            ("train-0000", "b", 0.0, None, None, None, "é\u2028", -0.5),
            ("train-0001", "c", None, None, "timeout", "2.5", "é\u2028", -0.5),
        )
    ]


def test_steps_and_events_are_in_the_columns_their_lines_have(run: Run) -> None:
    run.append_step({"step": 0, "score": 0.5})
    run.append_step({"step": 1, "score": 0.75, "tied": 3})
    run.append_event("publish", version=2)
    assert query(run, "SELECT step, score, tied FROM steps ORDER BY step") == [
        {"step": 0, "score": 0.5, "tied": None},
        {"step": 1, "score": 0.75, "tied": 3},
    ]
    assert query(run, "SELECT kind, version FROM events") == [{"kind": "publish", "version": 2}]


def test_verdicts_join_trajectories(run: Run) -> None:
    run.write_trajectories("p", [attempt("a", truth=1.0)])
    run.write_verdicts("p", [{"group_id": "g", "cost": 0.5}])
    run.write_grades("p", [{"trajectory_id": "a", "grade": -1.5}])
    assert query(
        run,
        "SELECT truth, cost, grade FROM trajectories JOIN verdicts USING (group_id, part) "
        "JOIN grades USING (trajectory_id, part)",
    ) == [{"truth": 1.0, "cost": 0.5, "grade": -1.5}]


def test_lines_longer_than_duckdbs_default_are_read(run: Run) -> None:
    run.write_verdicts("p", [{"group_id": "g", "raw": "x" * (17 << 20)}])
    assert query(run, "SELECT length(raw) AS n FROM verdicts") == [{"n": 17 << 20}]


@pytest.mark.parametrize("sql", ["SELEC 1", "SELECT nothing FROM steps", "SELECT * FROM nowhere"])
def test_wrong_sql_is_one_line(run: Run, sql: str) -> None:
    with pytest.raises(InputError, match="query of ") as caught:
        query(run, sql)
    assert "\n" not in str(caught.value)


def test_text_that_sql_cannot_hold_is_one_line(run: Run) -> None:
    run.append_event("odd", text="\ud800")
    with pytest.raises(InputError, match=r"events\.jsonl"):
        query(run, "SELECT * FROM events")


def test_the_store_is_imported_without_duckdb() -> None:
    code = "import sys, strop.store.query, strop.store.checkpoints; sys.exit('duckdb' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

"""The run directory: whole lines, whole files, and what is left after a kill or a full disk."""

import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from strop.errors import InputError, StropError
from strop.store import lines
from strop.store.run import Run
from strop.trajectory.model import Trajectory


def trajectory(name: str) -> Trajectory:
    return Trajectory(
        trajectory_id=name, scenario_id="s", group_id="g", messages=({"role": "user", "content": name},)
    )


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.create(tmp_path / "run", "seed = 0\n")


def files(run: Run) -> list[str]:
    return sorted(p.relative_to(run.path).as_posix() for p in run.path.rglob("*") if p.is_file())


def test_a_new_run_holds_its_config_and_nothing_else(run: Run) -> None:
    assert files(run) == ["run.toml"]
    assert Run.open(run.path).config_text() == "seed = 0\n"
    assert (run.name, run.steps(), run.events(), run.summary()) == ("run", [], [], None)


def test_a_run_is_never_created_over_another(run: Run) -> None:
    with pytest.raises(InputError, match="a run is there already"):
        Run.create(run.path, "seed = 1\n")
    assert run.config_text() == "seed = 0\n"


@pytest.mark.parametrize("opener", [Run.open, Run.view])
def test_a_directory_that_is_no_run_is_refused(tmp_path: Path, opener: object) -> None:
    assert callable(opener)
    with pytest.raises(InputError, match=r"no run there \(run.toml is missing\)"):
        opener(tmp_path)


def test_appends_are_whole_lines_in_order(tmp_path: Path) -> None:
    clock = iter([10.0, 11.5])
    run = Run(tmp_path, clock=lambda: next(clock))
    run.append_event("started", model="m")
    run.append_event("odd", text="line\nbreak \u2028 \ud800")
    run.append_step({"step": 0, "score": 0.1})
    assert (tmp_path / "events.jsonl").read_bytes().count(b"\n") == 2
    assert run.events() == [
        {"time": 10.0, "kind": "started", "model": "m"},
        {"time": 11.5, "kind": "odd", "text": "line\nbreak \u2028 \ud800"},
    ]
    assert run.steps() == [{"step": 0, "score": 0.1}]


def test_appends_of_many_threads_do_not_mix(run: Run) -> None:
    def work(number: int) -> None:
        for turn in range(20):
            run.append_event("work", number=number, turn=turn, pad="x" * 5000)

    threads = [Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted((e["number"], e["turn"]) for e in run.events()) == [
        (n, t) for n in range(4) for t in range(20)
    ]


@pytest.mark.parametrize("metrics", [{}, {"step": "1"}, {"step": True}, {"step": 1.0}])
def test_a_step_needs_its_number(run: Run, metrics: dict[str, object]) -> None:
    with pytest.raises(InputError, match="whole number under `step`"):
        run.append_step(metrics)
    assert run.steps() == []


def test_numbers_that_are_not_finite_reach_no_file(run: Run) -> None:
    for write in (
        lambda: run.append_step({"step": 0, "loss": float("nan")}),
        lambda: run.append_event("x", value=float("inf")),
        lambda: run.write_verdicts("p", [{"score": float("nan")}]),
        lambda: run.write_summary({"truth": float("nan")}),
    ):
        with pytest.raises(InputError, match="JSON"):
            write()
    assert files(run) == ["run.toml"]


@pytest.mark.parametrize(
    "torn", [b'{"step": 2, "sc', b"\x00" * 40 + b"\n", b'{"step": 2}', b"\xff\xfe", b"[2]\n"]
)
@pytest.mark.parametrize("whole", [0, 2])
def test_a_torn_last_line_is_cut_off_and_reported(run: Run, torn: bytes, whole: int) -> None:
    for step in range(whole):
        run.append_step({"step": step, "pad": "x" * 70_000})
    with open(run.path / "steps.jsonl", "ab") as file:
        file.write(torn)
    again = Run.open(run.path)
    assert [s["step"] for s in again.steps()] == list(range(whole))
    (event,) = again.events()
    assert (event["kind"], event["file"], event["bytes"]) == ("torn_line", "steps.jsonl", len(torn))
    again.append_step({"step": whole})
    assert [s["step"] for s in Run.open(run.path).steps()] == list(range(whole + 1))
    assert len(again.events()) == 1


def test_a_torn_event_is_reported_after_it_was_cut_off(run: Run) -> None:
    run.append_event("one")
    with open(run.path / "events.jsonl", "ab") as file:
        file.write(b'{"kind": "tw')
    assert [e["kind"] for e in Run.open(run.path).events()] == ["one", "torn_line"]


def test_a_viewer_sees_finished_lines_only_and_changes_nothing(run: Run) -> None:
    run.append_step({"step": 0})
    with open(run.path / "steps.jsonl", "ab") as file:
        file.write(b'{"step": 1')
    (run.path / ".tmp-1-x").write_text("in work")
    before = (run.path / "steps.jsonl").read_bytes()
    assert Run.view(run.path).steps() == [{"step": 0}]
    assert (run.path / "steps.jsonl").read_bytes() == before
    assert files(run) == [".tmp-1-x", "run.toml", "steps.jsonl"]


def test_a_broken_line_in_the_middle_is_an_error_with_its_place(run: Run) -> None:
    (run.path / "steps.jsonl").write_bytes(b'{"step": 0}\nrubbish\n{"step": 2}\n')
    with pytest.raises(InputError, match=r"steps\.jsonl:2: not JSON"):
        Run.open(run.path).steps()


def test_leftovers_of_a_killed_process_are_removed_at_open(run: Run) -> None:
    (run.path / "checkpoints" / ".tmp-9-0001").mkdir(parents=True)
    (run.path / "checkpoints" / ".tmp-9-0001" / "adapter.bin").write_bytes(b"half")
    (run.path / "trajectories").mkdir()
    (run.path / "trajectories" / ".tmp-9-train-0000.jsonl").write_bytes(b"half")
    Run.open(run.path)
    assert files(run) == ["run.toml"]
    assert list((run.path / "checkpoints").iterdir()) == []


def test_steps_after_the_checkpoint_are_dropped(run: Run) -> None:
    for step in range(5):
        run.append_step({"step": step})
    assert run.drop_steps_from(3) == 2
    assert [s["step"] for s in run.steps()] == [0, 1, 2]
    assert run.drop_steps_from(3) == 0
    assert run.drop_steps_from(0) == 3
    assert Run.open(run.path).steps() == []


def full_disk(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_while_dropping_keeps_all_steps(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for step in range(3):
        run.append_step({"step": step})
    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(StropError, match=r"steps\.jsonl: cannot be written \(No space left on device\)"):
        run.drop_steps_from(1)
    monkeypatch.undo()
    assert len(Run.view(run.path).steps()) == 3
    assert files(run) == ["run.toml", "steps.jsonl"]


def test_a_disk_that_fills_in_the_middle_of_a_line_leaves_the_lines_before(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.append_step({"step": 0})
    write, calls = os.write, iter([True, False])

    def half(handle: int, data: memoryview) -> int:
        if next(calls):
            return write(handle, data[:7])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", half)
    with pytest.raises(StropError, match="No space left"):
        run.append_step({"step": 1})
    monkeypatch.undo()
    assert (run.path / "steps.jsonl").read_bytes() == b'{"step":0}\n'


def test_a_line_that_the_system_takes_in_pieces_is_whole(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda handle, data: write(handle, data[:3]))
    run.append_step({"step": 0, "a": "0123456789"})
    assert run.steps() == [{"step": 0, "a": "0123456789"}]


def test_parts_round_trip(run: Run) -> None:
    run.write_trajectories("train-0000", [trajectory("a"), trajectory("b")])
    run.write_trajectories("heldout-before", [])
    run.write_verdicts("train-0000", [{"group_id": "g", "scores": {"a": 0.25}}])
    run.write_grades("heldout-after", [{"trajectory_id": "a", "steps": [0.5, -1e-300]}])
    assert list(run.read_trajectories("train-0000")) == [trajectory("a"), trajectory("b")]
    assert list(run.read_trajectories("heldout-before")) == []
    assert run.read_verdicts("train-0000") == [{"group_id": "g", "scores": {"a": 0.25}}]
    assert run.read_grades("heldout-after") == [{"trajectory_id": "a", "steps": [0.5, -1e-300]}]
    assert run.parts("trajectories") == ["heldout-before", "train-0000"]
    assert (run.parts("verdicts"), run.parts("grades")) == (["train-0000"], ["heldout-after"])


def test_a_failed_part_leaves_the_old_one(run: Run) -> None:
    def broken() -> Iterator[dict[str, object]]:
        yield {"group_id": "new"}
        raise RuntimeError("killed")

    run.write_verdicts("p", [{"group_id": "old"}])
    with pytest.raises(RuntimeError, match="killed"):
        run.write_verdicts("p", broken())
    assert run.read_verdicts("p") == [{"group_id": "old"}]
    assert files(run) == ["run.toml", "verdicts/p.jsonl"]


@pytest.mark.parametrize("part", ["", "..", "a/b", "../x", ".hidden", "a b", "a\n"])
def test_part_names_stay_inside_the_run(run: Run, part: str) -> None:
    with pytest.raises(InputError, match="use letters"):
        run.write_verdicts(part, [])


def test_a_missing_part_is_one_line(run: Run) -> None:
    with pytest.raises(InputError, match=r"verdicts/p\.jsonl: cannot be read"):
        run.read_verdicts("p")
    with pytest.raises(InputError, match=r"trajectories/p\.jsonl: cannot be read"):
        list(run.read_trajectories("p"))


def test_summary_is_replaced_whole(run: Run) -> None:
    run.write_summary({"truth_after": 0.9})
    run.write_summary({"truth_after": 0.95, "steps": 12})
    assert run.summary() == {"truth_after": 0.95, "steps": 12}
    assert json.loads((run.path / "summary.json").read_text()) == run.summary()


@pytest.mark.parametrize("length", [0, 1, 65_534, 65_535, 65_536, 65_537, 200_000])
@pytest.mark.parametrize("before", [b"", b"{}\n", b"{}\n{}\n"])
def test_mend_finds_the_last_line_wherever_its_blocks_end(tmp_path: Path, length: int, before: bytes) -> None:
    path = tmp_path / "f.jsonl"
    path.write_bytes(before + b"x" * length)
    assert lines.mend(path) == length
    assert path.read_bytes() == before
    path.write_bytes(before + b'{"a":"' + b"x" * length + b'"}\n')
    assert lines.mend(path) == 0


def test_evaluations_are_kept_by_the_steps_before_them(run: Run) -> None:
    assert run.evaluations() == []
    for steps in (0, 2, 4):
        run.append_evaluation({"steps": steps, "truth": None})
    assert run.drop_evaluations_after(2) == 1
    assert run.drop_evaluations_after(2) == 0
    assert [line["steps"] for line in run.evaluations()] == [0, 2]
    with pytest.raises(InputError, match="whole number under `steps`"):
        run.append_evaluation({"steps": 1.5})


def test_a_torn_evaluation_is_cut_off(run: Run) -> None:
    run.append_evaluation({"steps": 0})
    with open(run.path / "evaluations.jsonl", "ab") as file:
        file.write(b'{"steps": 2, "tru')
    assert [line["steps"] for line in Run.open(run.path).evaluations()] == [0]
    assert run.events()[-1] == {**run.events()[-1], "kind": "torn_line", "file": "evaluations.jsonl"}

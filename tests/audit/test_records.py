"""What a run kept, read back as values; what is no verdict or grade is said with file and line."""

from pathlib import Path

import pytest

from strop.audit import records
from strop.errors import InputError
from strop.judge.verdict import Cost, Verdict
from strop.store.run import Run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.create(tmp_path / "run", "")


def test_verdicts_come_back_as_they_were(run: Run) -> None:
    given = [Verdict(group_id=f"g{i}", scores={"a": i / 4}, cost=Cost(calls=i)) for i in range(3)]
    run.write_verdicts("train-0000", [verdict.to_json() for verdict in given])
    assert records.verdicts(run, "train-0000") == given


def test_a_part_that_is_not_there_holds_nothing(run: Run) -> None:
    assert records.verdicts(run, "train-0000") == []
    assert records.grades(run, "heldout-before") == []


def test_another_schema_is_said_with_file_and_line(run: Run) -> None:
    good = Verdict(group_id="g", scores={"a": 0.5}).to_json()
    run.write_verdicts("train-0000", [good, {**good, "schema": 1}])
    with pytest.raises(InputError, match=r"verdicts/train-0000\.jsonl:2: verdict of schema 1"):
        records.verdicts(run, "train-0000")
    run.write_grades("heldout-before", [{"schema": 99}])
    with pytest.raises(InputError, match=r"grades/heldout-before\.jsonl:1: grades of schema 99"):
        records.grades(run, "heldout-before")

"""Scenario files: what is read, and which line is wrong."""

from pathlib import Path

import pytest

from strop.errors import InputError
from strop.rollout.environment import Scenario
from strop.rollout.scenarios import read_scenarios


def written(folder: Path, text: str | bytes) -> Path:
    path = folder / "s.jsonl"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('{"scenario_id": "a", "data": {"x": 1}}', Scenario(scenario_id="a", data={"x": 1})),
        ('{"scenario_id": "a", "x": 1, "y": null}', Scenario(scenario_id="a", data={"x": 1, "y": None})),
        ('{"scenario_id": "a"}', Scenario(scenario_id="a", data={})),
        ('{"x": 1}', Scenario(scenario_id="line-0001", data={"x": 1})),
        ('{"data": {"x": 1}}', Scenario(scenario_id="line-0001", data={"x": 1})),
        ('{"scenario_id": "ü/ 1", "data": {}}', Scenario(scenario_id="ü/ 1", data={})),
    ],
)
def test_a_line(tmp_path: Path, line: str, expected: Scenario) -> None:
    assert read_scenarios(written(tmp_path, line)) == [expected]


def test_order_blank_lines_and_numbers_are_those_of_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, '\n{"x": 1}\r\n  \n{"scenario_id": "b"}\n{"x": 3}')
    assert [scenario.scenario_id for scenario in read_scenarios(path)] == ["line-0002", "b", "line-0005"]


def test_a_line_ends_at_a_line_feed_only(tmp_path: Path) -> None:
    """JSON text may hold other separators as they are."""
    text = "a\u2028b\u2029c\x85d"
    path = written(tmp_path, f'{{"x": "{text}"}}\n{{"x": "2"}}\n')
    assert [scenario.data["x"] for scenario in read_scenarios(path)] == [text, "2"]


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    assert read_scenarios(written(tmp_path, b'\xef\xbb\xbf{"scenario_id": "a"}'))[0].scenario_id == "a"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"a": 1}\n{"a": \n', "s.jsonl:2: not JSON"),
        ('{"a": 1}\n[1]\n', "s.jsonl:2"),
        ('{"a": NaN}', "s.jsonl:1"),
        ('{"scenario_id": 3}', "s.jsonl:1: scenario_id must be text and data an object"),
        ('{"scenario_id": ""}', "s.jsonl:1: scenario_id must be text"),
        ('{"data": [1]}', "s.jsonl:1: scenario_id must be text and data an object"),
        ('{"scenario_id": "a"}\n{"scenario_id": "a"}', "scenario_id 'a' is there twice"),
        ('{"scenario_id": "line-0002"}\n{}', "scenario_id 'line-0002' is there twice"),
        ("", "no scenario in it"),
        ("\n \n", "no scenario in it"),
        (b'{"a": "\xff"}', "s.jsonl:1: not UTF-8"),
    ],
)
def test_what_is_wrong_is_one_line_with_its_place(tmp_path: Path, text: str | bytes, said: str) -> None:
    with pytest.raises(InputError) as refused:
        read_scenarios(written(tmp_path, text))
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.jsonl"):
        read_scenarios(tmp_path / "none.jsonl")

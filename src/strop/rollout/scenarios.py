"""Scenarios from a JSONL file: one object a line, `scenario_id` and whatever else the agent is to see."""

from pathlib import Path

from strop.errors import InputError
from strop.rollout.environment import Scenario
from strop.trajectory.lines import numbered_lines, parse_object


def read_scenarios(path: Path) -> list[Scenario]:
    """All scenarios of a file, in order.

    A line is a JSON object with `scenario_id` (made from the line number where missing) and `data`
    (an object; without one the whole line is the data). Raises InputError, one line with file and
    line number, for anything else, for an id that occurs twice and for a file without scenarios.
    """
    found = [_scenario(text, f"{path}:{number}", number) for number, text in numbered_lines(path)]
    if not found:
        raise InputError(f"{path}: no scenario in it; write one JSON object a line")
    seen: set[str] = set()
    for scenario in found:
        if scenario.scenario_id in seen:
            raise InputError(f"{path}: scenario_id {scenario.scenario_id!r} is there twice; make them differ")
        seen.add(scenario.scenario_id)
    return found


def _scenario(line: str, where: str, number: int) -> Scenario:
    value = parse_object(line, where=where)
    scenario_id = value.get("scenario_id", f"line-{number:04d}")
    data = value.get("data", {key: item for key, item in value.items() if key != "scenario_id"})
    if not isinstance(scenario_id, str) or not scenario_id or not isinstance(data, dict):
        raise InputError(f"{where}: scenario_id must be text and data an object")
    return Scenario(scenario_id=scenario_id, data=data)

"""Conversations at the order desk, and the adapters that are shipped for it."""

from pathlib import Path

import strop
from strop.demo.clerk import Habits, demonstrate
from strop.demo.orders import STATUSES, scenario
from strop.engines.local.tokenizer import HFTokenizer
from strop.inference.chat import Chat
from strop.seeds import generator
from strop.training.demonstrations import as_turns
from strop.trajectory.model import Trajectory, Turn
from strop.trajectory.tokens import Row, rows

SHIPPED = Path(strop.__file__).parent / "demo/adapters"


def turns(number: int, tokenizer: HFTokenizer) -> tuple[Turn, ...]:
    """The turns of one demonstration."""
    return _shown(number, tokenizer).turns


def desk(number: int, tokenizer: HFTokenizer) -> list[Row]:
    """The rows of one demonstration."""
    made = _shown(number, tokenizer)
    return rows(made.trajectory_id, made.turns)


def _shown(number: int, tokenizer: HFTokenizer) -> Trajectory:
    habits = Habits(right_by_status=dict.fromkeys(STATUSES, 1.0))
    shown = demonstrate(scenario("warmstart", number), habits, generator(number, "demonstration"))
    told = Trajectory(
        trajectory_id=str(number), scenario_id="desk", group_id="desk", messages=tuple(shown.messages)
    )
    return as_turns(told, Chat(tokenizer))

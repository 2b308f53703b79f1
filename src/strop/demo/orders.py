"""Scenarios of the order desk: a customer, an order, and what became of it. All from seeds."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from strop.errors import InputError
from strop.seeds import generator

Part = Literal["train", "warmstart", "judge", "heldout"]

REFUNDABLE = ("damaged", "lost", "swapped")
FINAL = ("intact", "used", "late")
STATUSES = (*REFUNDABLE, *FINAL)

ITEMS = ("mug", "lamp", "chair", "scarf", "kettle", "clock", "rug", "vase", "desk", "radio", "tent", "bag")
CLAIMS = (
    "It is broken.",
    "It never came.",
    "I do not like it.",
    "This is not what I ordered.",
    "It looks used.",
    "I changed my mind.",
)
OPENINGS = ("Hello,", "Hi,", "Good morning,", "Please help.", "")

# Each part owns its own stretch of one fixed shuffle of all order numbers, so no two share an order.
_STRETCH: Mapping[Part, tuple[int, int]] = {
    "train": (0, 2000),
    "warmstart": (2000, 4500),
    "judge": (4500, 7500),
    "heldout": (7500, 9000),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderScenario:
    """One customer's case. `number_given` is false where the agent must ask for the order number."""

    scenario_id: str
    order: str
    item: str
    status: str
    claim: str
    opening: str
    number_given: bool

    @property
    def refund_due(self) -> bool:
        """What the desk's policy asks for."""
        return self.status in REFUNDABLE

    @property
    def customer_message(self) -> str:
        """The customer's first words. The claim says nothing about the order's true status."""
        subject = f"order {self.order}" if self.number_given else f"my {self.item}"
        return f"{self.opening} I want a refund for {subject}. {self.claim}".strip()


def scenario(part: Part, index: int) -> OrderScenario:
    """The `index`-th scenario of a part; the same on every machine. Raises InputError past the end.

    Statuses go round in a fixed cycle, so any six neighbours hold each status once.
    """
    first, last = _STRETCH[part]
    if not 0 <= index < last - first:
        raise InputError(f"order desk: {part} has {last - first} scenarios, asked for number {index}")
    rng = generator(2026, "order-desk", part, index)
    return OrderScenario(
        scenario_id=f"{part}-{index:04d}",
        order=str(_order_numbers()[first + index]),
        item=str(rng.choice(ITEMS)),
        status=_status(part, index),
        claim=str(rng.choice(CLAIMS)),
        opening=str(rng.choice(OPENINGS)),
        number_given=bool(rng.random() < 0.8),
    )


def scenarios(part: Part, count: int, start: int = 0) -> list[OrderScenario]:
    """`count` scenarios of a part, beginning at `start`."""
    return [scenario(part, index) for index in range(start, start + count)]


def _status(part: Part, index: int) -> str:
    cycle, place = divmod(index, len(STATUSES))
    return str(generator(2026, "statuses", part, cycle).permutation(STATUSES)[place])


@lru_cache(maxsize=1)
def _order_numbers() -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return 1000 + generator(2026, "order-numbers").permutation(9000)


def by_id(scenario_id: str) -> OrderScenario:
    """The scenario of an id such as "train-0003". Raises InputError for any other text."""
    part, _, index = scenario_id.rpartition("-")
    found = [known for known in _STRETCH if known == part]
    if not found or not index.isdecimal():
        raise InputError(f"order desk: no scenario {scenario_id!r}; ids look like train-0003")
    return scenario(found[0], int(index))

"""A file of demonstrations as what a warm start learns from and what it is measured on. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from strop.errors import InputError
from strop.inference.chat import Chat
from strop.seeds import generator
from strop.training.demonstrations import rendered_turns, restricted
from strop.training.loss_weights import Learn, loss_weights, shown
from strop.trajectory.model import Trajectory
from strop.trajectory.tokens import Row, rows

FATES = ("learned", "heldout", "too_long", "nothing_to_learn", "failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Demonstration:
    """One conversation: its rows, masked to what is learned, with one weight a row.

    Messages of different weight are rows of their own with the same ids, so every learned token is in the
    mask of exactly one row.
    """

    trajectory_id: str
    scenario_id: str
    rows: Sequence[Row]
    weights: Sequence[float]

    @property
    def tokens(self) -> int:
        """Tokens that are learned."""
        return sum(int(row.mask.sum()) for row in self.rows)

    @property
    def longest(self) -> int:
        """Tokens of its longest row, context included."""
        return max(len(row.ids) for row in self.rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lessons:
    """`dropped` counts demonstrations that were left out, by reason; they are never cut."""

    learned: Sequence[Demonstration]
    heldout: Sequence[Demonstration]
    dropped: Mapping[str, int]

    @property
    def counts(self) -> dict[str, int]:
        """Demonstrations by fate; they sum to `all`."""
        kept = Counter({"learned": len(self.learned), "heldout": len(self.heldout), **self.dropped})
        return {"all": kept.total(), **{fate: kept[fate] for fate in FATES}}


def read_demonstrations(
    trajectories: Iterable[Trajectory], chat: Chat, *, learn: Learn, max_length: int
) -> tuple[list[Demonstration], Counter[str]]:
    """The demonstrations that can be learned from, in order, and how many cannot, by reason.

    Conversations are written with the model's own template, tools included; token ids that another model
    recorded mean nothing to this one. `too_long`: a row of more than `max_length` tokens. Raises
    InputError, naming the trajectory, for messages that cannot be used.
    """
    kept: list[Demonstration] = []
    dropped: Counter[str] = Counter()
    for trajectory in trajectories:
        made = None if trajectory.failure else demonstration(trajectory, chat, learn)
        if made is None:
            dropped["failed" if trajectory.failure else "nothing_to_learn"] += 1
        elif made.longest > max_length:
            dropped["too_long"] += 1
        else:
            kept.append(made)
    return kept, dropped


def demonstration(trajectory: Trajectory, chat: Chat, learn: Learn = "all") -> Demonstration | None:
    """One conversation as rows; None where no message of it is learned. Raises InputError."""
    try:
        weights = loss_weights(trajectory.messages, learn)
        turns = rendered_turns(shown(trajectory.messages), trajectory.tools, chat) if weights else []
    except InputError as error:
        raise InputError(f"demonstration {trajectory.trajectory_id}: {error}") from error
    found: list[tuple[Row, float]] = []
    for row in rows(trajectory.trajectory_id, turns):
        for weight in dict.fromkeys(weights.values()):
            own = [i for i, turn in enumerate(turns) if weights.get(turn.message_index) == weight]
            found += [(part, weight) for part in [restricted(row, own)] if part.mask.any()]
    if not found:
        return None
    return Demonstration(
        trajectory_id=trajectory.trajectory_id,
        scenario_id=trajectory.scenario_id,
        rows=[row for row, _ in found],
        weights=[weight for _, weight in found],
    )


def split(
    demonstrations: Sequence[Demonstration], share: float, seed: int
) -> tuple[list[Demonstration], list[Demonstration]]:
    """What is learned and what is held out: whole scenarios, as near to `share` of them as can be.

    `share` is in [0, 0.9]. Where any are held out there are two at least, as one gives no interval; of
    fewer than four scenarios none are.
    """
    scenarios = list(dict.fromkeys(each.scenario_id for each in demonstrations))
    count = max(2, round(share * len(scenarios))) if share and len(scenarios) >= 4 else 0
    order = generator(seed, "held out").permutation(len(scenarios))
    kept_back = {scenarios[int(i)] for i in order[:count]}
    learned = [each for each in demonstrations if each.scenario_id not in kept_back]
    return learned, [each for each in demonstrations if each.scenario_id in kept_back]

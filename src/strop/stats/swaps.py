"""What a judge of pairs says when the two items change places."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from strop.errors import InputError
from strop.stats.intervals import RESAMPLES, Estimate, cluster_ratio, wilson
from strop.stats.kappa import kappa_estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class SwappedPair:
    """Items 0 and 1 judged twice: `forward` is the item chosen with 0 shown first, `backward` with 1
    shown first, each 0 or 1, None where the judge chose none. `truth` is the better item, None where
    nobody knows. Raises InputError for another item."""

    forward: int | None
    backward: int | None
    truth: int | None = None

    def __post_init__(self) -> None:
        for item in (self.forward, self.backward, self.truth):
            if item not in (0, 1, None):
                raise InputError(f"item {item!r} of a pair; give 0, 1 or None")

    @property
    def choices(self) -> tuple[int, ...]:
        """The choices that were made, none, one or two."""
        return tuple(item for item in (self.forward, self.backward) if item is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class SwapCheck:
    """How a judge bears a swap.

    `accuracy`: share of choices that are the better item, both orders together, resampled by pair;
    0.5 is chance. `forward`, `backward`: the same for one order alone. `both_right`: share of pairs
    right in both orders. `consistency`: share of pairs with the same item chosen in both orders
    (position consistency, Shi et al. 2024), `kappa` the same beyond chance. `first_share`: share of
    choices that are the item shown first, resampled by pair; 0.5 where place does not matter.
    `excluded` counts choices or pairs that are not there.
    """

    accuracy: Estimate
    forward: Estimate
    backward: Estimate
    both_right: Estimate
    consistency: Estimate
    kappa: Estimate
    first_share: Estimate

    def to_json(self) -> dict[str, Any]:
        """All estimates by name."""
        return {name: getattr(self, name).to_json() for name in self.__slots__}


def swap_check(
    pairs: Sequence[SwappedPair], rng: np.random.Generator, resamples: int = RESAMPLES
) -> SwapCheck:
    """The check over independent pairs. Where there is too little data its estimates say so."""
    known = [p for p in pairs if p.truth is not None]
    twice = [p for p in pairs if len(p.choices) == 2]
    judged = [p for p in twice if p.truth is not None]
    right = [sum(choice == p.truth for choice in p.choices) for p in known]
    accuracy = cluster_ratio(right, [len(p.choices) for p in known], rng, resamples)
    first = [(p.forward == 0) + (p.backward == 1) for p in pairs]
    first_share = cluster_ratio(first, [len(p.choices) for p in pairs], rng, resamples)
    both = wilson(sum(set(p.choices) == {p.truth} for p in judged), len(judged))
    same = wilson(sum(p.forward == p.backward for p in twice), len(twice))
    kappa = kappa_estimate(
        [p.forward for p in twice], [p.backward for p in twice], range(len(twice)), rng, resamples
    )
    return SwapCheck(
        accuracy=replace(accuracy, excluded=2 * len(pairs) - accuracy.n),
        forward=_accuracy([p.forward for p in known], known, len(pairs)),
        backward=_accuracy([p.backward for p in known], known, len(pairs)),
        both_right=replace(both, excluded=len(pairs) - len(judged)),
        consistency=replace(same, excluded=len(pairs) - len(twice)),
        kappa=replace(kappa, excluded=len(pairs) - len(twice)),
        first_share=replace(first_share, excluded=2 * len(pairs) - first_share.n),
    )


def _accuracy(choices: Sequence[int | None], pairs: Sequence[SwappedPair], asked: int) -> Estimate:
    made = [(choice, p.truth) for choice, p in zip(choices, pairs, strict=True) if choice is not None]
    share = wilson(sum(choice == truth for choice, truth in made), len(made))
    return replace(share, excluded=asked - len(made))
